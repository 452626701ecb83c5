// Tests of the text in `roci status` about huge pages of registered memory.
#include "apps/rocid/huge_registered.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace roci::rocid {
namespace {

TEST(HugeRegistered, ATextPerResult) {
    EXPECT_EQ(huge_registered_text(0), "stay huge");
    EXPECT_NE(huge_registered_text(EINVAL).find("MADV_COLLAPSE"), std::string_view::npos);
    EXPECT_NE(huge_registered_text(ENOMEM).find("no free huge page"), std::string_view::npos);
    EXPECT_EQ(huge_registered_text(EAGAIN), huge_registered_text(ENOMEM));
}

TEST(HugeRegistered, AProcessWithoutTransparentHugePagesGetsNone) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) _exit(1);
        _exit(try_huge_page() == EINVAL ? 0 : 2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: prctl refused; 2: the kernel made a huge page";
}

TEST(HugeRegistered, TheAttemptLeavesNoDescriptor) {
    const int before = dup(0);
    close(before);
    try_huge_page();
    const int after = dup(0);
    close(after);
    EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace roci::rocid
