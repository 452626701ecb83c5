// Determines whether memory that programs register can stay on huge pages.
#pragma once

#include <string_view>

namespace roci::rocid {

/// Returns a text for `roci status`. `error` is the error number with which the kernel refused to turn a page of a memfd into a
/// huge page; 0 if the kernel did it.
std::string_view huge_registered_text(int error);

/// Asks the kernel for one huge page of a memfd (MADV_COLLAPSE, Linux 6.1), as the client library does for each huge page that a
/// program registers. Returns 0 or the error number.
int try_huge_page();

}  // namespace roci::rocid
