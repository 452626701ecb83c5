// Captures the frames of one queue pair into a temporary file, for `roci plot`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "daemon.hpp"

namespace roci::cli {

/// A temporary file without a name. The kernel frees the file when the object is destroyed.
class TemporaryFile {
public:
    TemporaryFile();
    /// Returns a path in /proc by which open() can open the file again, at offset 0.
    std::string path() const;
    /// Appends `size` bytes. Returns false if write(2) fails.
    bool append(const char* data, size_t size);
    int fd() const { return fileno(file_.get()); }

private:
    std::unique_ptr<FILE, int (*)(FILE*)> file_;
};

struct LiveCapture {
    TemporaryFile file;
    std::vector<std::string> notices;
};

/// Captures the frames of the queue pair. The capture ends after `seconds`, at SIGINT or SIGTERM, when the queue pair is
/// destroyed, when the file is full, or when rocid ends the capture. Throws plot::Failure if there is no rocid, if rocid refuses
/// the capture, or if no temporary file can be created.
LiveCapture capture_qp(const Where& where, uint32_t qpn, double seconds);

}  // namespace roci::cli
