// Runs the real engines, each in the real lcore loop, and programs that use the client's end of the rings. Each engine and each
// program runs on its own simulated core (cores.hpp). Before the run, rocid's real control thread (the conductor) creates and
// connects the QPs. The run includes neither the functions of libibverbs nor the kernel.
#pragma once

#include <memory>
#include <vector>

#include "../memory_port.hpp"
#include "abi/client_rings.hpp"
#include "account.hpp"
#include "cores.hpp"
#include "pmd_glue/huge_chunks.hpp"
#include "sim/client.hpp"
#include "sim/world.hpp"

namespace roci::sharing {

struct Case {
    const char* name;
    abi::WrOpcode opcode;
    bool ping_pong;         ///< true: one message at a time, back and forth; false: batches
    uint32_t engines, qps;  ///< `qps` is the total number of pairs of QPs
    bool one_program;       ///< true: one program with one pair of CQs uses all engines; false: one program per engine
    std::span<const Limit> limits;
};

inline constexpr uint32_t kBytes = 64, kBatch = 32, kBatches = 2, kMessages = kBatch * kBatches, kSignalEvery = 32,
                          kReceivesAhead = 16;

/// A program's part of one end of a connected pair of QPs. The struct has separate cache lines, because the program
/// and the engine are normally different processes.
struct alignas(kLine) End {
    abi::SqProducer sq;
    abi::RqProducer rq;
    abi::DoorbellTarget bell;
    uint32_t slot = 0;
    abi::CqConsumer* cq = nullptr;
    uint32_t index = 0;           ///< index of the pair in its program
    std::byte* buffer = nullptr;  ///< memory for kMessages messages
    uint32_t lkey = 0, rkey = 0;
    uint32_t posted = 0;
};
struct alignas(kLine) Program {
    abi::CqConsumer left, right;
    std::vector<End> a, b;  ///< ends of the pairs
};

class Rig {
public:
    Rig(const Case& c, Account& account);
    /// Runs engines and programs until all messages of the measurement are counted (Account::over). Returns false if
    /// a message has failed.
    bool run(const Case& c, Account& account);

private:
    struct Side {
        std::unique_ptr<sim::Client> client;
        uint32_t pd = 0;
        sim::Cq* cq = nullptr;
    };
    sim::WorldOptions options(const Case& c);
    abi::CqConsumer add_side(sim::Host& host, uint32_t device, const Case& c, Account& account);
    sim::Qp& add_end(std::vector<End>& ends, Side& side, abi::CqConsumer& cq, Account& account);

    std::vector<std::unique_ptr<bench::MemoryWire>> wires_;  ///< one wire per engine
    pmd::HugeChunks chunks_;                                 ///< huge pages, as in rocid
    sim::World world_;
    std::vector<Side> sides_;  ///< two sides per program
    std::vector<Program> programs_;
    abi::EnginePage* page_ = nullptr;
};

/// Run a program until all messages of the measurement are counted (program.cpp). Return false if a message has
/// failed.
bool ping_pong(Program& p, abi::WrOpcode opcode, Account& account);
bool stream(Program& p, abi::WrOpcode opcode, Account& account);

}  // namespace roci::sharing
