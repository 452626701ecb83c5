#include "slow_threads.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace roci::rocid {

/// The state that all threads share. Each thread has a shared_ptr to the state, because threads may outlive the SlowThreads.
struct SlowThreads::Shared {
    mutable std::mutex mutex;
    mutable std::condition_variable idle;
    std::vector<pmd::WakeFlag*> lcores;  ///< empty if no lcore may be woken any more
    std::array<bool, mem::SlowWorker::kMost> numbers{};
    size_t threads = 0;
    std::atomic<uint64_t> submitted{0};  ///< number of requests submitted since the start
    uint64_t served = 0;                 ///< number of requests served since the start

    bool busy() const { return served != submitted.load(std::memory_order_seq_cst); }
    void end(uint32_t engine) {
        const std::lock_guard lock(mutex);
        ++served;
        if (!busy()) idle.notify_all();
        if (engine < lcores.size()) lcores[engine]->notify();
    }
};

class SlowThreads::Worker final : public mem::SlowWorker {
public:
    Worker(std::shared_ptr<Shared> shared, uint32_t engines, uint32_t number)
        : SlowWorker(engines, number), shared_(std::move(shared)), number_(number) {}
    ~Worker() override {
        const std::lock_guard lock(shared_->mutex);
        shared_->numbers[number_] = false;
    }
    void submitted() override {
        shared_->submitted.fetch_add(1, std::memory_order_seq_cst);
        wake();
    }
    void stop() {
        stop_.store(true, std::memory_order_seq_cst);
        wake();
    }
    /// The loop of the thread.
    void run() {
        while (!stop_.load(std::memory_order_seq_cst)) {
            const uint32_t seen = wakes_.load(std::memory_order_seq_cst);
            if (!serve_all()) wakes_.wait(seen, std::memory_order_seq_cst);
        }
        const std::lock_guard lock(shared_->mutex);
        drop_rest();
        --shared_->threads;
    }

private:
    /// Removes the remaining requests without accessing the requests, because their owner may have freed them. Counts the
    /// requests as served, so that drain() returns.
    void drop_rest() {
        mem::SlowRequest* left;
        for (uint32_t e = 0; e < lanes(); ++e)
            while (lane(e).requests.pop(left)) ++shared_->served;
        shared_->idle.notify_all();
    }
    void wake() {
        wakes_.fetch_add(1, std::memory_order_seq_cst);
        wakes_.notify_one();
    }
    bool serve_all() {
        bool any = false;
        for (uint32_t e = 0; e < lanes(); ++e) {
            mem::SlowRequest* request;
            if (!lane(e).requests.pop(request)) continue;
            any = true;
            mem::serve(*request);
            lane(e).done.push(request);
            shared_->end(e);
        }
        return any;
    }

    const std::shared_ptr<Shared> shared_;
    const uint32_t number_;
    std::atomic<uint32_t> wakes_{0};
    std::atomic<bool> stop_{false};
};

SlowThreads::SlowThreads(std::vector<pmd::WakeFlag*> lcores) : shared_(std::make_shared<Shared>()) {
    shared_->lcores = std::move(lcores);
}

SlowThreads::~SlowThreads() {
    constexpr int kPatience = 1000;
    drain(kPatience);
    const std::lock_guard lock(shared_->mutex);
    shared_->lcores.clear();
}

std::shared_ptr<mem::SlowWorker> SlowThreads::of(uint32_t user) {
    std::erase_if(workers_, [](const auto& entry) { return entry.second.expired(); });
    if (const auto it = workers_.find(user); it != workers_.end()) return it->second.lock();
    uint32_t number = 0, engines = 0;
    {
        const std::lock_guard lock(shared_->mutex);
        while (number < shared_->numbers.size() && shared_->numbers[number]) ++number;
        if (number == shared_->numbers.size()) return nullptr;
        shared_->numbers[number] = true;
        ++shared_->threads;
        engines = uint32_t(shared_->lcores.size());
    }
    const auto worker = std::make_shared<Worker>(shared_, engines, number);
    try {
        std::thread([worker] { worker->run(); }).detach();
    } catch (const std::system_error&) {
        const std::lock_guard lock(shared_->mutex);
        --shared_->threads;
        return nullptr;
    }
    // The thread has a separate pointer to the worker. When the last copy of `lease` is destroyed, stop() ends the thread.
    std::shared_ptr<mem::SlowWorker> lease(worker.get(), [worker](mem::SlowWorker*) { worker->stop(); });
    workers_[user] = lease;
    return lease;
}

size_t SlowThreads::threads() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->threads;
}

bool SlowThreads::drain(int limit_ms) const {
    using Clock = std::chrono::steady_clock;
    // A thread may finish a request before `submitted` counts the request. In this case, nothing notifies `idle`. So the loop
    // checks the condition at short intervals.
    constexpr std::chrono::milliseconds kLook{10};
    const auto end = Clock::now() + std::chrono::milliseconds(limit_ms);
    std::unique_lock lock(shared_->mutex);
    while (shared_->busy() && Clock::now() < end) shared_->idle.wait_until(lock, std::min(end, Clock::now() + kLook));
    return !shared_->busy();
}

}  // namespace roci::rocid
