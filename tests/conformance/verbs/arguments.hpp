// Rows that call a verb with one wrong argument. A row contains the expected error. The call must change nothing. The
// rows are in arguments_*.cpp, and arguments_test.cpp runs them. The expected errors are those of rdma-core's manual
// pages and of the kernel's uverbs. If Soft-RoCE reports another error, the row also contains this error and the
// reason.
#pragma once

#include <span>

#include "fixture.hpp"

namespace verbs_test {

/// Returns true if the rows run on Soft-RoCE.
inline bool elsewhere() { return std::getenv("ROCI_OTHER_PROVIDER") != nullptr; }

/// The way in which a verb reports an error.
enum class Way : uint8_t {
    value,    ///< the verb returns the errno and also sets errno
    header,   ///< an inline function of <infiniband/verbs.h> returns the errno without a call of a library
    negative  ///< the verb returns -1 or NULL and sets errno
};

/// The result of a call: 0 or the reported errno, and the value of errno after the call.
struct Got {
    int error = 0;
    int left = 0;
};

/// The objects that the rows use. A row must leave them unchanged.
class Stage {
public:
    Stage();
    ~Stage();
    Stage(const Stage&) = delete;

    End a{0}, b{1};  ///< two open devices, each with one RC QP that is connected to the QP of the other device
    ibv_qp *reset = nullptr, *init = nullptr, *rtr = nullptr, *ud = nullptr, *on_srq = nullptr;
    ibv_srq* srq = nullptr;
    ibv_pd* other = nullptr;  ///< a second PD of a's device
    ibv_comp_channel* channel = nullptr;
    ibv_cq *on_channel = nullptr, *small = nullptr;
    ibv_mw *mw1 = nullptr, *mw2 = nullptr;
    ibv_ah* ah = nullptr;
    ibv_mr* foreign = nullptr;  ///< a region in the PD `other`
    ibv_mr* plain = nullptr;    ///< a region without IBV_ACCESS_MW_BIND
    ibv_device_attr device{};
    ibv_gid group{};
    bool whole = true;  ///< all objects of the stage exist

    /// Returns the state of the objects as text. A failed call must leave this text unchanged.
    std::string snapshot();
    /// Sends a message from a to b. Returns true if the message arrives and no other request completes.
    bool works();
};

struct Row {
    const char* verb;
    const char* what;  ///< the wrong argument
    Way way;
    int error;
    Got (*call)(Stage&);
    int at_rxe = -1;            ///< the error that Soft-RoCE reports; -1: the same error
    const char* why = nullptr;  ///< reason for `at_rxe`
};
/// Value of Row::at_rxe for a row that must not run on Soft-RoCE.
inline constexpr int kSkip = -2;

/// Converts a number to an enum, even if the enum has no such value.
template <class Enum>
Enum number(uint32_t value) {
    Enum out;
    static_assert(sizeof out == sizeof value);
    std::memcpy(&out, &value, sizeof out);
    return out;
}

// Returns the result of a call that should create no object. If the call has created an object, destroys it.
template <class Object>
Got made(Object* object, int (*destroy)(Object*)) {
    const Got got{object != nullptr ? 0 : errno, errno};
    if (object != nullptr) destroy(object);
    return got;
}
inline Got returned(int value) { return {value, errno}; }
inline Got minus_one(int value) { return {value == 0 ? 0 : value == -1 ? errno : value, errno}; }

std::span<const Row> object_rows();
std::span<const Row> memory_rows();
std::span<const Row> qp_rows();
std::span<const Row> work_rows();

}  // namespace verbs_test
