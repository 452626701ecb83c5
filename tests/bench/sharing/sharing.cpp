// Counts the cache lines that move between engines and programs per message, by data structure (account.hpp).
//   sharing            prints a table
//   sharing --json     prints figures for `./dev bench`
// The exit status is 1 in four cases: the model fails its own test, a message fails, a line moves more often than
// permitted, or an engine writes an object that may share a line with another object (heap.hpp).
#include <cstdio>
#include <exception>
#include <string_view>

#include "../report.hpp"
#include "rig.hpp"
#include "self_test.hpp"

namespace roci::sharing {
namespace {

using abi::WrOpcode;

// The permitted moves per message. If the other side reads a line and the line is then written again, the line moves
// twice: by a fetch and by a take.
constexpr double kSome = 0.1;  ///< tolerance for moves that depend on timing
constexpr const char* kSlot = "a WQE is one line";
constexpr const char* kInlineSlot = "a WQE with 64 bytes inline is two lines";
constexpr const char* kPayload = "64 bytes that the engine writes and the program reads";
constexpr const char* kSource = "64 bytes that the program writes and the engine reads";
constexpr const char* kBothPayloads = "the bytes sent, and the bytes received";
constexpr const char* kReceive = "receives of one SGE are two a line";
constexpr const char* kProducer = "asked for when what is known is used up";
constexpr const char* kRecvCqe = "an entry a receive, one in 32 for the sender";
constexpr const char* kSendCqe = "an entry for 32 messages";
constexpr const char* kConsumer = "asked for when the queue seems full";
constexpr const char* kBell = "rung when the engine has stopped to look at a QP: not while there is work";

constexpr Limit kWritePingPong[] = {{"sq_slot", 4 + kSome, kInlineSlot},
                                    {"payload", 2 + kSome, kPayload},
                                    {"cqe", 0.1, kSendCqe},
                                    {"cq_consumer", 0.01, kConsumer}};
constexpr Limit kSendPingPong[] = {
    {"sq_slot", 4 + kSome, kInlineSlot}, {"payload", 2 + kSome, kPayload}, {"rq_slot", 1 + kSome, kReceive},
    {"rq_producer", 0.3, kProducer},     {"cqe", 2.2, kRecvCqe},           {"cq_consumer", 0.1, kConsumer}};
constexpr Limit kWriteBatches[] = {{"sq_slot", 2 + kSome, kSlot},    {"payload", 2 + kSome, kSource}, {"cqe", 0.1, kSendCqe},
                                   {"cq_consumer", 0.01, kConsumer}, {"sq_idle", 0.01, kBell},        {"doorbells", 0.01, kBell}};
constexpr Limit kSendBatches[] = {{"sq_slot", 2 + kSome, kSlot},    {"payload", 4 + kSome, kBothPayloads},
                                  {"rq_slot", 1 + kSome, kReceive}, {"rq_producer", 0.1, kProducer},
                                  {"cqe", 2.2, kRecvCqe},           {"cq_consumer", 0.01, kConsumer},
                                  {"sq_idle", 0.01, kBell},         {"doorbells", 0.01, kBell}};
constexpr Limit kReadBatches[] = {{"sq_slot", 2 + kSome, kSlot},
                                  {"cqe", 0.1, kSendCqe},
                                  {"cq_consumer", 0.01, kConsumer},
                                  {"sq_idle", 0.01, kBell},
                                  {"doorbells", 0.01, kBell}};

constexpr Case kCases[] = {
    {"write.64B.ping_pong", WrOpcode::rdma_write, true, 1, 1, true, kWritePingPong},
    {"send.64B.ping_pong", WrOpcode::send, true, 1, 1, true, kSendPingPong},
    {"write.64B.16qp", WrOpcode::rdma_write, false, 1, 16, true, kWriteBatches},
    {"send.64B.16qp", WrOpcode::send, false, 1, 16, true, kSendBatches},
    {"write.64B.two_engines", WrOpcode::rdma_write, false, 2, 16, false, kWriteBatches},
    {"send.64B.two_engines", WrOpcode::send, false, 2, 16, false, kSendBatches},
    {"read.64B.two_engines", WrOpcode::rdma_read, false, 2, 16, false, kReadBatches},
    {"send.64B.two_engines_one_cq", WrOpcode::send, false, 2, 16, true, kSendBatches},
};
/// Moves are counted during kCounted messages. Before that, kWarmUp messages pass without counting. During the warm-up both sides
/// use every slot and every entry once.
constexpr uint64_t kWarmUp = 5'000, kCounted = 5'000;

void print(const Case& c, const Account& account, const Moves& all) {
    std::printf("%-29s  fetches    takes    false  in vain  a message\n", c.name);
    const auto line = [&](const char* name, const Moves& m) {
        std::printf("  %-26s %8.3f %8.3f %8.3f %8.3f\n", name, account.a_message(m.fetches), account.a_message(m.takes),
                    account.a_message(m.falsely), account.a_message(m.in_vain));
    };
    for (const auto& [name, moves] : account.rows()) line(name.c_str(), moves);
    line("all", all);
}

void report_figures(const Case& c, const Account& account, const Moves& all) {
    const std::string name = std::string("sharing.") + c.name + ".";
    for (const auto& [structure, moves] : account.rows())
        bench::report(name + structure, account.a_message(moves.all()), "moves/msg");
    bench::report(name + "all", account.a_message(all.all()), "moves/msg");
}

/// Returns false if a message has failed, or if a line moves more often than permitted. Adds the wrong moves
/// (Account::wrong) per message to `wrong`.
bool measure(const Case& c, bool json, double& wrong) {
    Account account(c.engines, kWarmUp, kCounted);
    Rig rig(c, account);
    if (!rig.run(c, account)) return std::fprintf(stderr, "%s: a message failed\n", c.name), false;
    Moves all;
    for (const auto& [name, moves] : account.rows()) all.add(moves);
    (json ? report_figures : print)(c, account, all);
    wrong += account.a_message(account.wrong());
    const auto faults = account.faults(c.limits);
    for (const std::string& f : faults) std::fprintf(stderr, "%s: %s\n", c.name, f.c_str());
    return faults.empty();
}

int run(bool json) {
    bool good = model_is_right();
    double wrong = 0;
    for (const Case& c : kCases) good = measure(c, json, wrong) && good;
    if (json) bench::report("sharing.wrong", wrong, "moves/msg");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace roci::sharing

int main(int argc, char** argv) {
    try {
        return roci::sharing::run(argc > 1 && std::string_view(argv[1]) == "--json");
    } catch (const std::exception& e) {
        return std::fprintf(stderr, "sharing: %s\n", e.what()), 1;
    }
}
