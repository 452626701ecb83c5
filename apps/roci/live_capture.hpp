// Captures the frames of one queue pair into a temporary file, for `roci plot`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "daemon.hpp"

namespace roci::cli {

/// An unlinked file. The kernel frees it when this object is destroyed.
class TemporaryFile {
public:
    TemporaryFile();
    /// Returns a path by which another open() reads the file from its beginning.
    std::string path() const;
    /// Returns false if the file cannot grow.
    bool append(const char* data, size_t size);
    int fd() const { return fileno(file_.get()); }

private:
    std::unique_ptr<FILE, int (*)(FILE*)> file_;
};

struct LiveCapture {
    TemporaryFile file;
    std::vector<std::string> notices;
};

/// Captures until the time has passed, SIGINT or SIGTERM arrives, the queue pair is destroyed, the file is full or rocid ends the
/// capture. Throws plot::Failure if there is no rocid, if rocid refuses, or if no temporary file can be created.
LiveCapture capture_qp(const Where& where, uint32_t qpn, double seconds);

}  // namespace roci::cli
