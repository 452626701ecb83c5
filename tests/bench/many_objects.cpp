// Measures how the cost of memory windows and regions grows with their number. The figures are the microseconds per
// ibv_alloc_mw and ibv_dealloc_mw of windows of type 1 and type 2, and per ibv_reg_mr and ibv_dereg_mr of 64 bytes.
// The arguments are the numbers of objects.
#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "report.hpp"

namespace {

using roci::bench::now_ns;

constexpr size_t kBytes = 64;

struct Kind {
    const char* name;
    void* (*make)(ibv_pd*, char* memory);
    int (*free)(void*);
};

int free_window(void* p) { return ibv_dealloc_mw(static_cast<ibv_mw*>(p)); }

constexpr Kind kKinds[] = {
    {"mw1", [](ibv_pd* pd, char*) -> void* { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); }, free_window},
    {"mw2", [](ibv_pd* pd, char*) -> void* { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, free_window},
    {"mr", [](ibv_pd* pd, char* memory) -> void* { return ibv_reg_mr(pd, memory, kBytes, int(IBV_ACCESS_LOCAL_WRITE)); },
     [](void* p) { return ibv_dereg_mr(static_cast<ibv_mr*>(p)); }},
};

void report(const Kind& kind, const char* step, size_t count, uint64_t since) {
    roci::bench::report(std::string("many.") + kind.name + "." + step + "." + std::to_string(count),
                        double(now_ns() - since) / 1000 / double(count), "us");
}

bool measure(ibv_pd* pd, const Kind& kind, size_t count) {
    std::vector<char> memory(count * kBytes);
    std::vector<void*> made(count);
    uint64_t start = now_ns();
    for (size_t i = 0; i < count; ++i)
        if ((made[i] = kind.make(pd, memory.data() + i * kBytes)) == nullptr) return false;
    report(kind, "make", count, start);
    start = now_ns();
    for (void* p : made)
        if (kind.free(p) != 0) return false;
    report(kind, "free", count, start);
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    ibv_pd* pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
    if (pd == nullptr) {
        std::fprintf(stderr, "many_objects: no device\n");
        return 1;
    }
    for (int i = 1; i < argc; ++i)
        for (const Kind& kind : kKinds)
            if (!measure(pd, kind, std::strtoul(argv[i], nullptr, 10))) {
                std::perror(kind.name);
                return 1;
            }
    return 0;
}
