// Measures the latency of control calls while 0, 4 or 16 other processes use the CPUs all the time. The figures are
// the median and the 99th percentile per verb in microseconds. The program uses only the public verbs.
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "report.hpp"

namespace {

using roci::bench::now_ns;

/// Processes that use the CPU all the time. The destructor ends them.
class Load {
public:
    explicit Load(unsigned count) {
        for (unsigned i = 0; i < count; ++i) children_.push_back(spin());
    }
    ~Load() {
        for (const pid_t child : children_) kill(child, SIGKILL);
        for (const pid_t child : children_) waitpid(child, nullptr, 0);
    }
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

private:
    static pid_t spin() {
        const pid_t child = fork();
        if (child != 0) return child;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const sched_param ordinary{};
        // The load has the ordinary scheduling policy, even if the benchmark itself has a real-time priority.
        sched_setscheduler(0, SCHED_OTHER, &ordinary);
        for (std::atomic<unsigned> n{0};;) n.fetch_add(1, std::memory_order_relaxed);
    }
    std::vector<pid_t> children_;
};

struct Device {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    std::vector<char> memory = std::vector<char>(1 << 16);

    bool open() {
        ibv_device** list = ibv_get_device_list(nullptr);
        context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
        pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
        cq = pd != nullptr ? ibv_create_cq(context, 64, nullptr, nullptr, 0) : nullptr;
        return cq != nullptr && (qp = make_qp()) != nullptr;
    }
    ibv_qp* make_qp() const {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap = {16, 16, 1, 1, 0};
        return ibv_create_qp(pd, &attr);
    }
};

struct Row {
    const char* name;
    bool (*call)(Device&);
};

constexpr Row kRows[] = {
    {"query_gid",
     [](Device& d) {
         ibv_gid gid;
         return ibv_query_gid(d.context, 1, 1, &gid) == 0;
     }},
    {"query_port",
     [](Device& d) {
         ibv_port_attr attr;
         return ibv_query_port(d.context, 1, &attr) == 0;
     }},
    {"query_qp",
     [](Device& d) {
         ibv_qp_attr attr;
         ibv_qp_init_attr init;
         return ibv_query_qp(d.qp, &attr, IBV_QP_STATE, &init) == 0;
     }},
    {"modify_qp",  // to INIT and back to RESET
     [](Device& d) {
         ibv_qp_attr attr{};
         attr.qp_state = IBV_QPS_INIT;
         attr.port_num = 1;
         if (ibv_modify_qp(d.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) return false;
         attr.qp_state = IBV_QPS_RESET;
         return ibv_modify_qp(d.qp, &attr, IBV_QP_STATE) == 0;
     }},
    {"reg_mr",
     [](Device& d) {
         ibv_mr* mr = ibv_reg_mr(d.pd, d.memory.data(), d.memory.size(), int(IBV_ACCESS_LOCAL_WRITE));
         return mr != nullptr && ibv_dereg_mr(mr) == 0;
     }},
    {"create_qp",
     [](Device& d) {
         ibv_qp* qp = d.make_qp();
         return qp != nullptr && ibv_destroy_qp(qp) == 0;
     }},
};

bool measure(Device& device, const Row& row, unsigned load, unsigned calls) {
    std::vector<double> us;
    for (unsigned i = 0; i < calls; ++i) {
        const uint64_t start = now_ns();
        if (!row.call(device)) return false;
        us.push_back(double(now_ns() - start) / 1000);
    }
    std::sort(us.begin(), us.end());
    const std::string name = std::string("control.") + row.name + ".load" + std::to_string(load);
    roci::bench::report(name + ".median", us[us.size() / 2], "us");
    roci::bench::report(name + ".p99", us[us.size() * 99 / 100], "us");
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned calls = argc > 1 && std::strcmp(argv[1], "--quick") == 0 ? 50 : 400;
    Device device;
    if (!device.open()) {
        std::fprintf(stderr, "control_bench: no device\n");
        return 1;
    }
    for (const unsigned count : {0u, 4u, 16u}) {
        const Load load(count);
        for (const Row& row : kRows) {
            if (!measure(device, row, count, calls)) return 1;
        }
    }
    return 0;
}
