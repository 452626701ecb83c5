// Rocinante by the public verbs, as any program sees it: one thread drives both ends, rocid does the rest. Each mode prints its
// figures. Rates are the best of several short windows, since other programs on the machine only ever take away from them.
#include <unistd.h>

#include <string_view>

#include "histogram.hpp"
#include "report.hpp"
#include "verbs_rig.hpp"

namespace roci::bench {
namespace {

bool quick = false;

struct Load {
    ibv_wr_opcode opcode;
    uint32_t bytes, qps;
    uint32_t batch;        ///< work requests of which the last is signalled
    uint32_t list;         ///< work requests a call of ibv_post_send; 1: no postlist
    uint32_t batches = 2;  ///< under way at once, a QP
};

/// A stream of messages on every pair: whenever a batch has completed, the next is posted.
class Stream {
public:
    Stream(Rig& rig, const Load& load) : rig_(rig), load_(load), sends_(load.list), recvs_(load.batch) {
        const bool write = load.opcode == IBV_WR_RDMA_WRITE || load.opcode == IBV_WR_RDMA_READ;
        source_ = {uint64_t(rig.source.data), load.bytes, rig.source.mr->lkey};
        target_ = {uint64_t(rig.target.data), load.bytes, rig.target.mr->lkey};
        for (uint32_t i = 0; i < load.list; ++i) {
            sends_[i] = {};
            sends_[i].next = i + 1 < load.list ? &sends_[i + 1] : nullptr;
            sends_[i].sg_list = &source_;
            sends_[i].num_sge = 1;
            sends_[i].opcode = load.opcode;
            if (write) sends_[i].wr.rdma = {uint64_t(rig.target.data), rig.target.mr->rkey};
        }
        for (uint32_t i = 0; i < load.batch; ++i) recvs_[i] = {0, i + 1 < load.batch ? &recvs_[i + 1] : nullptr, &target_, 1};
        receives_ = load.opcode == IBV_WR_SEND;
    }
    /// Messages a second, best of `windows` of `ns` each.
    double rate(unsigned windows, uint64_t ns) {
        for (uint32_t b = 0; b < load_.batches; ++b)
            for (uint32_t q = 0; q < load_.qps; ++q) post(q);
        double best = 0;
        for (unsigned w = 0; w < windows; ++w) {
            done_ = 0;
            const uint64_t start = now_ns();
            uint64_t now = start;
            while ((now = now_ns()) - start < ns) pump(true);
            best = std::max(best, double(done_) * load_.batch * 1e9 / double(now - start));
        }
        while (under_way_ != 0) pump(false);
        return best;
    }

private:
    void post(uint32_t q) {
        ibv_recv_wr* bad_recv = nullptr;
        if (receives_) need0(ibv_post_recv(rig_.pairs[q].right, recvs_.data(), &bad_recv), "ibv_post_recv");
        for (uint32_t sent = 0; sent < load_.batch; sent += load_.list) {
            ibv_send_wr* bad = nullptr;
            const bool last = sent + load_.list >= load_.batch;
            sends_.back().send_flags = last ? IBV_SEND_SIGNALED : 0;
            sends_.back().wr_id = q;
            need0(ibv_post_send(rig_.pairs[q].left, sends_.data(), &bad), "ibv_post_send");
        }
        ++under_way_;
    }
    void pump(bool again) {
        while (receives_ && drain(rig_.right_cq, [](const ibv_wc&) {}) != 0) {
        }
        drain(rig_.left_cq, [&](const ibv_wc& wc) {
            --under_way_;
            ++done_;
            if (again) post(uint32_t(wc.wr_id));
        });
    }

    Rig& rig_;
    const Load load_;
    ibv_sge source_{}, target_{};
    std::vector<ibv_send_wr> sends_;
    std::vector<ibv_recv_wr> recvs_;
    bool receives_ = false;
    uint64_t done_ = 0, under_way_ = 0;
};

double messages_per_second(const Load& load) {
    Rig rig(load.qps, load.batch * load.batches, std::max<size_t>(load.bytes, 4096));
    return Stream(rig, load).rate(quick ? 3 : 8, quick ? 100'000'000 : 200'000'000);
}

// ---- modes ----------------------------------------------------------------------------------------------------------

void rates() {
    struct Row {
        const char* name;
        Load load;
    };
    const Row rows[] = {
        {"verbs.rate.write.64B.1qp", {IBV_WR_RDMA_WRITE, 64, 1, 32, 32, 4}},
        {"verbs.rate.write.64B.1qp.no_postlist", {IBV_WR_RDMA_WRITE, 64, 1, 32, 1, 4}},
        {"verbs.rate.write.64B.16qp", {IBV_WR_RDMA_WRITE, 64, 16, 32, 32}},
        {"verbs.rate.write.64B.256qp", {IBV_WR_RDMA_WRITE, 64, 256, 32, 32, 1}},
        {"verbs.rate.send.64B.1qp", {IBV_WR_SEND, 64, 1, 32, 32, 4}},
        {"verbs.rate.send.64B.16qp", {IBV_WR_SEND, 64, 16, 32, 32}},
        {"verbs.rate.read.64B.16qp", {IBV_WR_RDMA_READ, 64, 16, 32, 32}},
        {"verbs.rate.write.512B.16qp", {IBV_WR_RDMA_WRITE, 512, 16, 32, 32}},
        {"verbs.rate.write.4KiB.16qp", {IBV_WR_RDMA_WRITE, 4096, 16, 32, 32}},
    };
    for (const Row& r : rows) report(r.name, messages_per_second(r.load) / 1e6, "Mmsg/s");
}

/// Many QPs, all with work all the time. `batch` 1: each message touches a QP that was last seen 10,000 messages ago.
void many_qps() {
    const uint32_t qps = quick ? 2'000 : 10'000;
    for (const uint32_t batch : {1u, 32u})
        for (const uint32_t n : {16u, qps}) {
            const Load load{IBV_WR_RDMA_WRITE, 64, n, batch, batch, 1};
            report("verbs.rate.write.64B.batch" + std::to_string(batch) + "." + std::to_string(n) + "qp",
                   messages_per_second(load) / 1e6, "Mmsg/s");
        }
}

void bandwidth() {
    struct Row {
        const char* name;
        uint32_t bytes, batch;
    };
    for (const Row& r : {Row{"4KiB", 4 << 10, 32}, Row{"64KiB", 64 << 10, 4}, Row{"1MiB", 1 << 20, 1}, Row{"8MiB", 8 << 20, 1}})
        for (const ibv_wr_opcode op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
            const double rate = messages_per_second({op, r.bytes, 1, r.batch, r.batch, 4});
            report(std::string("verbs.bandwidth.") + (op == IBV_WR_RDMA_WRITE ? "write." : "read.") + r.name,
                   rate * r.bytes / 1e9, "GB/s");
        }
}

void say(const std::string& name, const Histogram& h, double scale) {
    report(name + ".p50", double(h.quantile(0.5)) * scale, "ns");
    report(name + ".p99", double(h.quantile(0.99)) * scale, "ns");
    report(name + ".p999", double(h.quantile(0.999)) * scale, "ns");
    report(name + ".max", double(h.max()) * scale, "ns");
}

void post_one(ibv_qp* qp, ibv_sge& sge, ibv_wr_opcode opcode, const Buffer* remote, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    if (remote != nullptr) wr.wr.rdma = {uint64_t(remote->data), remote->mr->rkey};
    need0(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}
void post_receive(ibv_qp* qp, ibv_sge& sge) {
    ibv_recv_wr wr{0, nullptr, &sge, 1}, *bad = nullptr;
    need0(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

/// SEND there, SEND back; both CQs are polled. As programs that care for latency do (ib_send_lat): short messages inline,
/// receives posted ahead, and a completion of the sender for every 32nd only.
void latency() {
    constexpr uint32_t kInline = 64, kSignalEvery = 32, kAhead = 16;
    for (const uint32_t bytes : {64u, 4096u}) {
        Rig rig(1, 64, 4096, kInline);
        const Rig::Pair p = rig.pairs[0];
        ibv_sge left{uint64_t(rig.source.data), bytes, rig.source.mr->lkey},
            right{uint64_t(rig.target.data), bytes, rig.target.mr->lkey};
        const auto await = [](ibv_cq* cq) {
            for (bool got = false; !got;) drain(cq, [&](const ibv_wc& wc) { got = got || wc.opcode == IBV_WC_RECV; });
        };
        Histogram h;
        const uint32_t rounds = quick ? 20'000 : 200'000;
        for (uint32_t i = 0; i < kAhead; ++i) post_receive(p.left, left), post_receive(p.right, right);
        for (uint32_t i = 0; i < rounds + rounds / 10; ++i) {
            const unsigned flags =
                (bytes <= kInline ? unsigned(IBV_SEND_INLINE) : 0u) | (i % kSignalEvery == 0 ? unsigned(IBV_SEND_SIGNALED) : 0u);
            const uint64_t start = now_ns();
            post_one(p.left, left, IBV_WR_SEND, nullptr, flags);
            await(rig.right_cq);
            post_receive(p.right, right);
            post_one(p.right, right, IBV_WR_SEND, nullptr, flags);
            await(rig.left_cq);
            post_receive(p.left, left);
            if (i >= rounds / 10) h.add(now_ns() - start);
        }
        say("verbs.half_round_trip.send." + std::to_string(bytes) + "B", h, 0.5);
    }
}

/// From posting to completion of a 64-byte WRITE while rocid's engine sleeps; and while it is awake, to compare.
void wake() {
    Rig rig(1, 64, 4096);
    ibv_sge sge{uint64_t(rig.source.data), 64, rig.source.mr->lkey};
    const auto once = [&] {
        const uint64_t start = now_ns();
        post_one(rig.pairs[0].left, sge, IBV_WR_RDMA_WRITE, &rig.target);
        while (drain(rig.left_cq, [](const ibv_wc&) {}) == 0) {
        }
        return now_ns() - start;
    };
    Histogram asleep, awake;
    for (uint32_t i = 0; i < (quick ? 50u : 300u); ++i) {
        usleep(5000);
        asleep.add(once());
        for (uint32_t k = 0; k < 10; ++k) awake.add(once());
    }
    say("verbs.write_completes.engine_awake", awake, 1);
    say("verbs.write_completes.engine_asleep", asleep, 1);
}

void connect() {
    const Device left("roci0"), right("roci1");
    ibv_cq* cq = need(ibv_create_cq(left.context, 256, nullptr, nullptr, 0), "ibv_create_cq");
    constexpr uint32_t kQps = 500;
    std::vector<ibv_qp*> qps(kQps);
    const double ns = best_ns(quick ? 3 : 8, [&] {
        for (ibv_qp*& qp : qps) to_rts(qp = create_qp(left, cq, 16), 0x1234, right.gid);
        for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    });
    double made = 1e300;
    for (uint32_t i = 0; i < (quick ? 3u : 8u); ++i) {
        made = std::min(made, best_ns(1, [&] {
                            for (ibv_qp*& qp : qps) to_rts(qp = create_qp(left, cq, 16), 0x1234, right.gid);
                        }));
        for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    }
    report("verbs.create_to_rts", kQps * 1e9 / made, "QP/s");
    report("verbs.create_to_rts_and_destroy", kQps * 1e9 / ns, "QP/s");
    ibv_destroy_cq(cq);
}

/// Registration of memory that was never registered, and once more of the same.
void registration() {
    const Device d("roci0");
    struct Row {
        const char* name;
        size_t bytes;
        unsigned tries;
    };
    const Row rows[] = {{"4KiB", 4096, 200}, {"1MiB", 1 << 20, 50}, {"large", quick ? size_t{128} << 20 : size_t{1} << 30, 1}};
    for (const Row& r : rows) {
        double first = 1e300, second = 1e300, release = 1e300;
        for (unsigned i = 0; i < r.tries; ++i) {
            uint8_t* p = Buffer::map(r.bytes);
            ibv_mr *a = nullptr, *b = nullptr;
            first = std::min(first, best_ns(1, [&] { a = need(ibv_reg_mr(d.pd, p, r.bytes, Buffer::kAccess), "ibv_reg_mr"); }));
            second = std::min(second, best_ns(1, [&] { b = need(ibv_reg_mr(d.pd, p, r.bytes, Buffer::kAccess), "ibv_reg_mr"); }));
            release = std::min(release, best_ns(1, [&] { ibv_dereg_mr(b); }));
            ibv_dereg_mr(a);
            munmap(p, r.bytes);
        }
        const std::string name = std::string("verbs.reg_mr.") + r.name;
        report(name + ".first", first / 1e3, "us");
        report(name + ".second", second / 1e3, "us");
        report(name + ".dereg_second", release / 1e3, "us");
        if (r.bytes > (1 << 20)) report(name + ".rate", double(r.bytes) / first, "GB/s");
    }
}

/// Anonymous memory of the process `pid` (rocid): rings are shared memory and not part of it.
uint64_t anonymous_bytes(const char* pid) {
    FILE* f = need(std::fopen((std::string("/proc/") + pid + "/status").c_str(), "r"), "status of rocid");
    char line[256];
    unsigned long kib = 0;
    while (std::fgets(line, sizeof line, f) != nullptr)
        if (std::sscanf(line, "RssAnon: %lu", &kib) == 1) break;
    std::fclose(f);
    return uint64_t{kib} << 10;
}

/// Before anything else: what rocid's allocator got back from earlier QPs would be used again and not counted.
void memory_a_qp() {
    const char* pid = std::getenv("ROCI_BENCH_ROCID_PID");
    if (pid == nullptr) return;
    const auto with = [pid](uint32_t qps) {
        const Rig rig(qps, 1, 4096);
        return anonymous_bytes(pid);
    };
    const uint64_t some = with(4'000), more = with(8'000);
    report("verbs.rocid_memory_a_qp", double(more - some) / 8'000, "B");
}

/// Keeps a connected pair open until standard input ends.
void hold() {
    Rig rig(1, 16, 4096);
    while (std::getchar() != EOF) {
    }
}

struct Mode {
    std::string_view name;
    void (*run)();
};
constexpr Mode kModes[] = {{"memory", memory_a_qp}, {"rate", rates}, {"many", many_qps},   {"bandwidth", bandwidth},
                           {"latency", latency},    {"wake", wake},  {"connect", connect}, {"register", registration}};

bool wanted(int argc, char** argv, std::string_view name) {
    bool any = false;
    for (int i = 1; i < argc; ++i) {
        if (argv[i] == name) return true;
        any = any || argv[i][0] != '-';
    }
    return !any;
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
    using namespace roci::bench;
    for (int i = 1; i < argc; ++i) quick = quick || std::strcmp(argv[i], "--quick") == 0;
    if (argc > 1 && std::strcmp(argv[1], "hold") == 0) return hold(), 0;
    for (const Mode& m : kModes)
        if (wanted(argc, argv, m.name)) m.run();
    return 0;
}
