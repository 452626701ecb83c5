#include "page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "words.hpp"

namespace roci::plot {
namespace {

constexpr size_t kMostListed = 200;

/// Escapes the characters '<', '>' and '&' of a JSON text, so that the text cannot end the script element that contains it.
std::string for_script(std::string json) {
    std::string out;
    out.reserve(json.size() + json.size() / 16);
    for (const char c : json) {
        if (c == '<' || c == '>' || c == '&') {
            out += fmt::format("\\u{:04x}", unsigned(c));
        } else {
            out += c;
        }
    }
    return out;
}

std::string notices_html(const Analysis& a) {
    std::string out;
    for (const std::string& n : a.notices) out += "<p class=\"notice\">" + escaped(n) + "</p>\n";
    return out;
}

std::string summary_html(const Analysis& a) {
    std::string out;
    for (const Analysed& d : a.drawn) {
        const std::vector<std::string> lines = sentences(d);
        out += fmt::format("<section class=\"words\" data-connection=\"{}\"><p><b>{}</b></p><ul>\n", d.number, escaped(lines[0]));
        for (size_t i = 1; i < lines.size(); ++i) out += "<li>" + escaped(lines[i]) + "</li>\n";
        out += "</ul></section>\n";
    }
    return out;
}

struct Row {
    const char* name;
    uint64_t Counts::*value;
};
constexpr Row kRows[] = {{"requests sent", &Counts::sent},
                         {"sent again", &Counts::resent},
                         {"lost", &Counts::lost},
                         {"overtaken", &Counts::late},
                         {"responses", &Counts::responses},
                         {"responses again", &Counts::responses_again},
                         {"ACKs", &Counts::acks},
                         {"sequence NAKs", &Counts::sequence_naks},
                         {"RNR NAKs", &Counts::rnr_naks},
                         {"error NAKs", &Counts::error_naks},
                         {"marked", &Counts::marked},
                         {"CNPs", &Counts::cnps},
                         {"payload, bytes", &Counts::payload}};

/// Returns the table of packet counts, with one column per direction that has packets. Rows that contain only zeros are omitted.
std::string table_html(const Analysis& a) {
    std::string head = "<tr><th>packets</th>";
    std::vector<const Counts*> columns;
    for (const Analysed& d : a.drawn)
        for (int i = 0; i < 2; ++i) {
            if (d.streams[i].empty()) continue;
            columns.push_back(&d.streams[i].counts);
            head += fmt::format("<th>connection {}<br>requests of {}</th>", d.number,
                                escaped(i == 0 ? d.connection.a : d.connection.b));
        }
    std::string out = "<table class=\"counts\"><thead>" + head + "</tr></thead><tbody>\n";
    for (const Row& row : kRows) {
        if (std::ranges::all_of(columns, [&](const Counts* c) { return c->*row.value == 0; })) continue;
        out += fmt::format("<tr><td>{}</td>", row.name);
        for (const Counts* c : columns) out += "<td>" + grouped(c->*row.value) + "</td>";
        out += "</tr>\n";
    }
    return out + "</tbody></table>\n";
}

std::string connections_html(const Analysis& a) {
    if (a.connections.size() < 2) return "";
    std::string out =
        "<h2>All connections of the capture</h2>\n<div "
        "class=\"scroll\"><table><thead><tr><th>number</th><th>service</th><th>ends</th><th>frames</th></tr></thead><tbody>\n";
    for (size_t i = 0; i < std::min(a.connections.size(), kMostListed); ++i) {
        const Connection& c = a.connections[i];
        out += fmt::format("<tr><td>{}</td><td>{}</td><td>{} and {}</td><td>{}</td></tr>\n", i + 1, service_name(c.service),
                           escaped(c.a), escaped(c.b), grouped(c.frames));
    }
    out += "</tbody></table></div>\n";
    if (a.connections.size() > kMostListed)
        out += fmt::format("<p>The {} with the most frames of {} are listed.</p>\n", kMostListed, grouped(a.connections.size()));
    return out;
}

constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

}  // namespace

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string page(const Analysis& a) {
    const ReadCounts& n = a.capture.counts;
    std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
    out += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kPolicy);
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    out += "<title>" + escaped(a.capture.name) + " - roci plot</title>\n<style>\n" + kStyle + "</style></head><body>\n";
    out += "<header><h1>" + escaped(a.capture.name) + "</h1>\n";
    out += fmt::format("<p>{} RoCEv2 packets of {} frames, {}</p></header>\n", grouped(n.roce), grouped(n.frames),
                       count_of(a.connections.size(), "connection"));
    out += notices_html(a) + kBody + "<h2>In words</h2>\n" + summary_html(a);
    out += "<h2>In numbers</h2>\n<div class=\"scroll\">" + table_html(a) + "</div>\n" + connections_html(a);
    out += "<noscript><p class=\"notice\">The graphs need JavaScript, which is off. Words and numbers do not.</p></noscript>\n";
    out += "<script type=\"application/json\" id=\"data\">" + for_script(page_data(a)) + "</script>\n";
    return out + "<script>\n" + kScript + "</script></body></html>\n";
}

}  // namespace roci::plot
