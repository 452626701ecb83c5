#include "reaper.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace roci::rocid {
namespace {

/// Largest number of threads. If items of this many users block at the same time, other users have to wait.
constexpr size_t kMostThreads = 64;
constexpr std::chrono::seconds kStaysIdle{10};

struct Thing {
    int fd = -1;  ///< -1 if the item is a mapping
    void* base = nullptr;
    uint64_t length = 0;

    void let_go() const {
        if (fd >= 0)
            ::close(fd);
        else
            munmap(base, length);
    }
};

struct User {
    std::deque<Thing> things;
    size_t closing = 0;   ///< number of descriptors that are not closed yet
    bool served = false;  ///< a thread is releasing an item of this user
};

}  // namespace

/// The state that all threads share. Each thread has a shared_ptr to the state, because threads may outlive the Reaper.
struct Reaper::State {
    mutable std::mutex mutex;
    std::condition_variable work;
    mutable std::condition_variable idle;
    std::unordered_map<uint32_t, User> users;
    std::deque<uint32_t> turns;  ///< users with pending work and without a thread
    size_t threads = 0, waiting = 0, pending = 0;
    bool stop = false;

    void serve();
    void finish_one(uint32_t number, bool was_descriptor);
};

/// The loop of a thread. Each pass releases one item of the next user, then puts this user at the end of the queue.
void Reaper::State::serve() {
    std::unique_lock lock(mutex);
    for (;;) {
        ++waiting;
        work.wait_for(lock, kStaysIdle, [&] { return stop || !turns.empty(); });
        --waiting;
        if (turns.empty()) break;
        const uint32_t number = turns.front();
        turns.pop_front();
        User& user = users[number];
        const Thing thing = user.things.front();
        user.things.pop_front();
        user.served = true;
        lock.unlock();
        thing.let_go();
        lock.lock();
        finish_one(number, thing.fd >= 0);
    }
    --threads;
}

void Reaper::State::finish_one(uint32_t number, bool was_descriptor) {
    const auto it = users.find(number);
    User& user = it->second;
    user.served = false;
    user.closing -= was_descriptor ? 1 : 0;
    if (user.things.empty())
        users.erase(it);
    else
        turns.push_back(number);
    if (--pending == 0) idle.notify_all();
}

Reaper::Reaper() : state_(std::make_shared<State>()) {}

Reaper::~Reaper() {
    constexpr int kPatience = 1000;
    drain(kPatience);
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->work.notify_all();
}

void Reaper::close(uint32_t user, int fd) {
    if (fd >= 0) add(user, fd, nullptr, 0);
}

void Reaper::unmap(uint32_t user, void* base, uint64_t length) { add(user, -1, base, length); }

void Reaper::add(uint32_t number, int fd, void* base, uint64_t length) {
    const std::lock_guard lock(state_->mutex);
    State& s = *state_;
    User& user = s.users[number];
    user.things.push_back({fd, base, length});
    user.closing += fd >= 0 ? 1 : 0;
    ++s.pending;
    if (user.served || user.things.size() > 1) return;
    s.turns.push_back(number);
    if (s.waiting >= s.turns.size() || s.threads == kMostThreads) return s.work.notify_one();
    try {
        std::thread([state = state_] { state->serve(); }).detach();
        ++s.threads;
    } catch (const std::system_error&) {
        s.work.notify_one();  // without a new thread, the existing threads do the work
    }
}

size_t Reaper::closing(uint32_t user) const {
    const std::lock_guard lock(state_->mutex);
    const auto it = state_->users.find(user);
    return it == state_->users.end() ? 0 : it->second.closing;
}

size_t Reaper::pending() const {
    const std::lock_guard lock(state_->mutex);
    return state_->pending;
}

bool Reaper::drain(int limit_ms) const {
    std::unique_lock lock(state_->mutex);
    return state_->idle.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return state_->pending == 0; });
}

}  // namespace roci::rocid
