// Creates the page of `roci plot`: one HTML file that contains the data, the style and the script.
#pragma once

#include <string>

#include "analysis.hpp"

namespace roci::plot {

/// Returns the data of the page as JSON. Long series are shortened.
std::string page_data(const Analysis& a);
/// Returns the HTML text of the page. The page loads no other files.
std::string page(const Analysis& a);

/// Escapes a text for HTML.
std::string escaped(const std::string& text);

/// The contents of page.css, of body.html, and of charts.js followed by page.js.
extern const char* const kStyle;
extern const char* const kBody;
extern const char* const kScript;

}  // namespace roci::plot
