// Rows of "this verb with this wrong argument": what it returns, what it leaves in errno, and that it changed nothing. The rows
// are in arguments_*.cpp; arguments_test.cpp runs them. The expected values are those of rdma-core's manual pages and of the
// kernel's uverbs; where Soft-RoCE differs, the row says how and why.
#pragma once

#include <span>

#include "fixture.hpp"

namespace verbs_test {

/// How a verb reports an error.
enum class Way : uint8_t {
    value,    ///< it returns the errno, and leaves it in errno
    header,   ///< an inline function of <infiniband/verbs.h> returns the errno before any library is called
    negative  ///< it returns -1 or NULL, with errno
};

/// What a call did: 0 or the errno that it reported, and errno itself afterwards.
struct Got {
    int error = 0;
    int left = 0;
};

/// Objects of every kind, in every state that a wrong argument can meet.
class Stage {
public:
    Stage();
    ~Stage();
    Stage(const Stage&) = delete;

    End a{0}, b{1};  ///< two open devices, connected by an RC QP each
    ibv_qp *reset = nullptr, *init = nullptr, *rtr = nullptr, *ud = nullptr, *on_srq = nullptr;
    ibv_srq* srq = nullptr;
    ibv_pd* other = nullptr;  ///< a second PD of a's device
    ibv_comp_channel* channel = nullptr;
    ibv_cq *on_channel = nullptr, *small = nullptr;
    ibv_mw *mw1 = nullptr, *mw2 = nullptr;
    ibv_ah* ah = nullptr;
    ibv_mr* foreign = nullptr;  ///< a region of `other`
    ibv_mr* plain = nullptr;    ///< a region without IBV_ACCESS_MW_BIND
    ibv_device_attr device{};
    ibv_gid group{};
    bool whole = true;  ///< everything above exists

    /// Everything that a failed verb must have left as it was, as text.
    std::string snapshot();
    /// A message from a to b arrives, and nothing else has completed.
    bool works();
};

struct Row {
    const char* verb;
    const char* what;  ///< is wrong
    Way way;
    int error;
    Got (*call)(Stage&);
    int at_rxe = -1;            ///< what Soft-RoCE reports instead; -1: the same
    const char* why = nullptr;  ///< it differs; kSkip: the row is not run there
};
/// Soft-RoCE's library crashes on it, or does not have the object.
inline constexpr int kSkip = -2;

/// A value of an enum that may have none of it.
template <class Enum>
Enum number(uint32_t value) {
    Enum out;
    static_assert(sizeof out == sizeof value);
    std::memcpy(&out, &value, sizeof out);
    return out;
}

// What a call did; an object that should not exist is destroyed.
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
