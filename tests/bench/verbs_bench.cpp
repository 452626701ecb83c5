// Measures Rocinante by the public verbs. One thread of a program drives both ends. Each mode prints its figures.
// With `--rows` only some figures are measured. Other programs can only make figures worse. So a rate is the best of
// several short windows, and a half round trip comes from the run with the best median.
#include <unistd.h>

#include <functional>
#include <string_view>

#include <CLI/CLI.hpp>

#include "histogram.hpp"
#include "report.hpp"
#include "verbs_rig.hpp"

namespace roci::bench {
namespace {

bool quick = false;

struct Load {
    ibv_wr_opcode opcode;
    uint32_t bytes, qps;
    uint32_t batch;        ///< work requests per batch; the last one is signalled
    uint32_t list;         ///< work requests per call of ibv_post_send
    uint32_t batches = 2;  ///< outstanding batches per QP
};

/// A stream of messages on every pair. After a batch has completed, the next batch is posted.
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
    /// Returns the number of messages per second in the best of `windows` windows. Each window takes `ns`
    /// nanoseconds.
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

// ---- the rows of each mode ---------------------------------------------------------------------------------------------

/// One or more figures that are measured together. `name` is the name of the figure, or the common prefix of the
/// names.
struct Row {
    std::string name;
    std::function<void()> run;
};
using Rows = std::vector<Row>;

Row rate_row(const std::string& name, const Load& load) {
    return {name, [name, load] { report(name, messages_per_second(load) / 1e6, "Mmsg/s"); }};
}

Rows rates() {
    return {
        rate_row("verbs.rate.write.64B.1qp", {IBV_WR_RDMA_WRITE, 64, 1, 32, 32, 4}),
        rate_row("verbs.rate.write.64B.1qp.no_postlist", {IBV_WR_RDMA_WRITE, 64, 1, 32, 1, 4}),
        rate_row("verbs.rate.write.64B.16qp", {IBV_WR_RDMA_WRITE, 64, 16, 32, 32}),
        rate_row("verbs.rate.write.64B.256qp", {IBV_WR_RDMA_WRITE, 64, 256, 32, 32, 1}),
        rate_row("verbs.rate.send.64B.1qp", {IBV_WR_SEND, 64, 1, 32, 32, 4}),
        rate_row("verbs.rate.send.64B.16qp", {IBV_WR_SEND, 64, 16, 32, 32}),
        rate_row("verbs.rate.read.64B.16qp", {IBV_WR_RDMA_READ, 64, 16, 32, 32}),
        rate_row("verbs.rate.write.512B.16qp", {IBV_WR_RDMA_WRITE, 512, 16, 32, 32}),
        rate_row("verbs.rate.write.4KiB.16qp", {IBV_WR_RDMA_WRITE, 4096, 16, 32, 32}),
    };
}

/// Compares 16 QPs with very many QPs. After a batch of a QP has completed, the QP gets its next batch. If `batch` is
/// 1, the engine sends one message per QP in turn.
Rows many_qps() {
    const uint32_t qps = quick ? 2'000 : 10'000;
    Rows rows;
    for (const uint32_t batch : {1u, 32u})
        for (const uint32_t n : {16u, qps})
            rows.push_back(rate_row("verbs.rate.write.64B.batch" + std::to_string(batch) + "." + std::to_string(n) + "qp",
                                    {IBV_WR_RDMA_WRITE, 64, n, batch, batch, 1}));
    return rows;
}

Rows bandwidth() {
    struct Size {
        const char* name;
        uint32_t bytes, batch;
    };
    Rows rows;
    for (const Size& z :
         {Size{"4KiB", 4 << 10, 32}, Size{"64KiB", 64 << 10, 4}, Size{"1MiB", 1 << 20, 1}, Size{"8MiB", 8 << 20, 1}})
        for (const ibv_wr_opcode op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
            const std::string name = std::string("verbs.bandwidth.") + (op == IBV_WR_RDMA_WRITE ? "write." : "read.") + z.name;
            rows.push_back({name, [name, z, op] {
                                const double rate = messages_per_second({op, z.bytes, 1, z.batch, z.batch, 4});
                                report(name, rate * z.bytes / 1e9, "GB/s");
                            }});
        }
    return rows;
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

/// A ping-pong of SENDs with polling, as in ib_send_lat. Short messages are inline. Receives are posted in advance.
/// The sender gets a completion only for every 32nd message.
class PingPong {
public:
    explicit PingPong(uint32_t bytes)
        : rig_(1, 64, 4096, kInline),
          left_{uint64_t(rig_.source.data), bytes, rig_.source.mr->lkey},
          right_{uint64_t(rig_.target.data), bytes, rig_.target.mr->lkey},
          flags_(bytes <= kInline ? unsigned(IBV_SEND_INLINE) : 0u) {
        for (uint32_t i = 0; i < kAhead; ++i) post_receive(pair_.left, left_), post_receive(pair_.right, right_);
    }
    /// Makes `rounds` round trips, after a warm-up with a tenth as many. Returns the round trips in ticks, and the nanoseconds
    /// per tick.
    std::pair<Histogram, double> run(uint32_t rounds) {
        Histogram h;
        const uint64_t first_ns = now_ns(), first = ticks();
        for (uint32_t i = 0; i < rounds + rounds / 10; ++i) {
            const unsigned flags = flags_ | (i % kSignalEvery == 0 ? unsigned(IBV_SEND_SIGNALED) : 0u);
            const uint64_t start = ticks();
            post_one(pair_.left, left_, IBV_WR_SEND, nullptr, flags);
            await(rig_.right_cq);
            post_receive(pair_.right, right_);
            post_one(pair_.right, right_, IBV_WR_SEND, nullptr, flags);
            await(rig_.left_cq);
            post_receive(pair_.left, left_);
            if (i >= rounds / 10) h.add(ticks() - start);
        }
        return {h, double(now_ns() - first_ns) / double(ticks() - first)};
    }

private:
    static constexpr uint32_t kInline = 64, kSignalEvery = 32, kAhead = 16;
    static void await(ibv_cq* cq) {
        for (bool got = false; !got;) drain(cq, [&](const ibv_wc& wc) { got = got || wc.opcode == IBV_WC_RECV; });
    }
    Rig rig_;
    const Rig::Pair pair_ = rig_.pairs[0];
    ibv_sge left_, right_;
    const unsigned flags_;
};

/// All figures come from the run with the lowest median. Minimums of single figures would mix different runs.
Rows latency() {
    constexpr unsigned kRuns = 3;
    Rows rows;
    for (const uint32_t bytes : {64u, 4096u}) {
        const std::string name = "verbs.half_round_trip.send." + std::to_string(bytes) + "B";
        rows.push_back({name, [name, bytes] {
                            PingPong ping(bytes);
                            auto best = ping.run(quick ? 20'000 : 200'000);
                            for (unsigned i = 1; i < kRuns; ++i)
                                if (auto run = ping.run(quick ? 20'000 : 200'000);
                                    run.first.quantile(0.5) < best.first.quantile(0.5))
                                    best = run;
                            say(name, best.first, 0.5 * best.second);
                        }});
    }
    return rows;
}

/// Measures the time from the posting to the completion of a 64-byte WRITE while the engine of rocid sleeps. For
/// comparison, measures the same time while the engine is awake.
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

/// Measures the first and the second registration of the same memory, and the release of the second registration.
void register_memory(const std::string& name, size_t bytes, unsigned tries) {
    const Device d("roci0");
    double first = 1e300, second = 1e300, release = 1e300;
    for (unsigned i = 0; i < tries; ++i) {
        uint8_t* p = Buffer::map(bytes);
        ibv_mr *a = nullptr, *b = nullptr;
        first = std::min(first, best_ns(1, [&] { a = need(ibv_reg_mr(d.pd, p, bytes, Buffer::kAccess), "ibv_reg_mr"); }));
        second = std::min(second, best_ns(1, [&] { b = need(ibv_reg_mr(d.pd, p, bytes, Buffer::kAccess), "ibv_reg_mr"); }));
        release = std::min(release, best_ns(1, [&] { ibv_dereg_mr(b); }));
        ibv_dereg_mr(a);
        munmap(p, bytes);
    }
    report(name + ".first", first / 1e3, "us");
    report(name + ".second", second / 1e3, "us");
    report(name + ".dereg_second", release / 1e3, "us");
    if (bytes > (1 << 20)) report(name + ".rate", double(bytes) / first, "GB/s");
}

Rows registration() {
    struct Size {
        const char* name;
        size_t bytes;
        unsigned tries;
    };
    Rows rows;
    for (const Size& z :
         {Size{"4KiB", 4096, 200}, Size{"1MiB", 1 << 20, 50}, Size{"large", size_t{quick ? 128u : 1024u} << 20, 1}}) {
        const std::string name = std::string("verbs.reg_mr.") + z.name;
        rows.push_back({name, [name, z] { register_memory(name, z.bytes, z.tries); }});
    }
    return rows;
}

/// Returns the number of bytes of anonymous memory of the process `pid` (rocid). Rings are shared memory, so they are
/// not included.
uint64_t anonymous_bytes(const char* pid) {
    FILE* f = need(std::fopen((std::string("/proc/") + pid + "/status").c_str(), "r"), "status of rocid");
    char line[256];
    unsigned long kib = 0;
    while (std::fgets(line, sizeof line, f) != nullptr)
        if (std::sscanf(line, "RssAnon: %lu", &kib) == 1) break;
    std::fclose(f);
    return uint64_t{kib} << 10;
}

/// Measures the memory of rocid per QP. The allocator of rocid reuses the memory of earlier QPs, and reused memory
/// would not be counted. So this row must be the first.
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

/// Keeps a connected pair of QPs open until the end of standard input.
void hold() {
    Rig rig(1, 16, 4096);
    while (std::getchar() != EOF) {
    }
}

struct Mode {
    std::string_view name;
    Rows (*rows)();
};
constexpr Mode kModes[] = {
    {"memory",
     [] {
         return Rows{{"verbs.rocid_memory_a_qp", memory_a_qp}};
     }},
    {"rate", rates},
    {"many", many_qps},
    {"bandwidth", bandwidth},
    {"latency", latency},
    {"wake",
     [] {
         return Rows{{"verbs.write_completes", wake}};
     }},
    {"connect",
     [] {
         return Rows{{"verbs.create_to_rts", connect}};
     }},
    {"register", registration},
};

/// Returns the rows of the given modes in the order of kModes. If no mode is given, returns the rows of all modes. If
/// a mode is unknown, throws an exception with a message for the user.
Rows rows_of(const std::vector<std::string>& modes) {
    Rows all;
    for (const std::string& word : modes)
        if (std::ranges::find(kModes, word, &Mode::name) == std::end(kModes)) {
            std::string names;
            for (const Mode& m : kModes) names += " " + std::string(m.name);
            throw std::invalid_argument("no mode '" + word + "'; there are:" + names + "; alone: hold");
        }
    for (const Mode& m : kModes)
        if (modes.empty() || std::ranges::find(modes, m.name) != modes.end())
            for (Row& r : m.rows()) all.push_back(std::move(r));
    return all;
}

/// Returns the rows whose names contain one of the words. If no word is given, returns all rows. If no row contains a
/// given word, throws an exception with a message for the user.
Rows picked(const Rows& all, const std::vector<std::string>& words) {
    Rows out;
    const auto has = [](const Row& r, const std::string& word) { return r.name.find(word) != std::string::npos; };
    for (const std::string& word : words)
        if (std::ranges::none_of(all, [&](const Row& r) { return has(r, word); })) {
            std::string names;
            for (const Row& r : all) names += "\n  " + r.name;
            throw std::invalid_argument("no row has '" + word + "' in its name; there are:" + names);
        }
    for (const Row& r : all)
        if (words.empty() || std::ranges::any_of(words, [&](const std::string& w) { return has(r, w); })) out.push_back(r);
    return out;
}

}  // namespace
}  // namespace roci::bench

int main(int argc, char** argv) {
    using namespace roci::bench;
    std::vector<std::string> modes, words;
    CLI::App app("Rocinante by the public verbs: a line of JSON a figure");
    app.add_option("mode", modes,
                   "What to measure: memory rate many bandwidth latency wake connect register (default: all); or hold");
    app.add_option("--rows", words, "Only rows with one of these words in their name");
    app.add_flag("--quick", quick, "Shorter windows; figures are coarser");
    CLI11_PARSE(app, argc, argv);
    if (modes == std::vector<std::string>{"hold"}) return hold(), 0;
    try {
        for (const Row& r : picked(rows_of(modes), words)) r.run();
    } catch (const std::invalid_argument& e) {
        return std::fprintf(stderr, "verbs_bench: %s\n", e.what()), 2;
    }
    return 0;
}
