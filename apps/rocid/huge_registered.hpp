// Determines whether memory that programs register can stay on huge pages.
#pragma once

#include <string_view>

namespace roci::rocid {

/// Returns a text for `roci status`. `error` is the result of try_huge_page().
std::string_view huge_registered_text(int error);

/// Turns a page of a memfd into a huge page by MADV_COLLAPSE (Linux 6.1). The client library uses the same operation for each
/// huge page that a program registers. Returns 0 or an errno.
int try_huge_page();

}  // namespace roci::rocid
