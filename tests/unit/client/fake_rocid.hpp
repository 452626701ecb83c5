// A fake rocid in the process of the test. It answers the requests of the control protocol with few checks. It gives
// the test access to rocid's side of the rings, so that the test takes the role of the engines.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/client_rings.hpp"
#include "abi/control.hpp"
#include "abi/device_page.hpp"

namespace roci::test {

class FakeRocid {
public:
    static constexpr uint32_t kEngines = 2;
    static constexpr uint64_t kDoorbellStride = 16384;

    /// Listens on a new socket and sets ROCI_SOCKET to the path of this socket.
    FakeRocid();
    ~FakeRocid();

    // ---- settings that a test makes at its start --------------------------------------------------------------------
    uint32_t abi_min = abi::kAbiVersion, abi_max = abi::kAbiVersion;
    uint32_t lanes = kEngines;
    uint32_t engine_of_next_qp = 1;
    /// Makes a device page with one snapshot. Devices that are opened later get this page.
    void make_device_page(const abi::DeviceSnapshot& now);
    /// Returns the record of the device in the page. This function and page_owner() are valid after
    /// make_device_page().
    abi::DeviceRecord& device_record() { return *reinterpret_cast<abi::DeviceRecord*>(device_page_ + kRecordAt); }
    uint32_t& page_owner() { return *reinterpret_cast<uint32_t*>(device_page_ + kOwnerAt); }
    /// Makes requests of this op fail with this errno and a reason. If the errno is 0, the requests succeed again.
    void refuse(abi::Op op, int error);

    // ---- received requests
    uint32_t count(abi::Op op) const;
    /// Returns the body of the last request of this op as raw bytes.
    std::vector<std::byte> last(abi::Op op) const;
    template <class T>
    T last_as(abi::Op op) const {
        T out{};
        const auto bytes = last(op);
        std::memcpy(&out, bytes.data(), std::min(sizeof out, bytes.size()));
        return out;
    }
    /// Returns the number of requests that came with a descriptor, without add_chunk and open_device.
    uint32_t received_fds() const { return received_fds_; }

    // ---- objects and rings, as an engine sees them
    struct Qp {
        abi::CreateQpReply reply;
        abi::SqShared* sq;
        std::byte* sq_slots;
        abi::RqShared* rq;
        std::byte* rq_slots;

        bool posted(uint32_t index) const {
            auto* wqe = reinterpret_cast<abi::SendWqe*>(sq_slots + (index & (reply.sq_depth - 1)) * reply.sq_stride);
            return std::atomic_ref(wqe->phase).load(std::memory_order_acquire) == abi::phase_of(index, reply.sq_depth);
        }
        /// Returns the number of posted WQEs. Counts from index 0.
        uint32_t posted_sends() const {
            uint32_t n = 0;
            while (n < reply.sq_depth && posted(n)) ++n;
            return n;
        }
    };
    struct Cq {
        abi::CreateCqReply reply;
        abi::CqShared* shared;
        std::byte* lanes;
        std::vector<uint32_t> produced;
    };
    struct Srq {
        abi::CreateSrqReply reply;
        abi::RqShared* rq;
        std::byte* slots;
    };
    Qp& qp(uint32_t handle) { return qps_.at(handle); }
    Cq& cq(uint32_t handle) { return cqs_.at(handle); }
    Srq& srq(uint32_t handle) { return srqs_.at(handle); }
    const abi::SendWqe& send_wqe(uint32_t qp_handle, uint32_t index);
    const abi::RecvWqe& recv_wqe(uint32_t qp_handle, uint32_t index);

    /// Writes an entry into a lane of the CQ, as the engine of this lane does.
    void complete(uint32_t cq_handle, uint32_t lane, const abi::Cqe& entry);
    abi::DoorbellPage& doorbells(uint32_t engine) {
        return *reinterpret_cast<abi::DoorbellPage*>(doorbells_ + engine * kDoorbellStride);
    }
    abi::EnginePage& engine_page() { return *engine_page_; }
    bool doorbell_set(uint32_t engine, uint32_t slot) { return (doorbells(engine).words[slot / 64] >> (slot % 64) & 1) != 0; }
    /// Returns the number of times that the client has woken the engine since the last call.
    uint64_t wakes(uint32_t engine);

    // ---- events and the end of rocid
    void send_comp_event(const abi::CompEventRecord& record);
    void send_async_event(const abi::AsyncEventRecord& record);
    /// Simulates the end of rocid: closes every connection and every event socket.
    void die();

private:
    struct Reply {
        std::vector<std::byte> body;
        std::vector<int> fds;
        int error = 0;
        int pipe = -1; /* of fds: closed once sent */
    };
    void listen_on(const std::string& path);
    void accept_loop();
    void serve(int fd);
    Reply answer(abi::Op op, const std::vector<std::byte>& body);
    Reply open_device(const std::vector<std::byte>& body);
    Reply create_cq(const std::vector<std::byte>& body);
    Reply resize_cq(const std::vector<std::byte>& body);
    Reply create_qp(const std::vector<std::byte>& body);
    Reply create_srq(const std::vector<std::byte>& body);
    Reply create_channel();
    abi::Location allocate(uint64_t bytes);
    std::byte* at(const abi::Location& where) { return arena_ + where.offset; }
    uint32_t new_handle() { return next_handle_++; }

    std::string folder_, path_;
    int listener_ = -1;
    std::thread acceptor_;
    std::vector<std::thread> servers_;
    std::vector<int> connections_;
    mutable std::mutex mutex_;
    std::map<abi::Op, int> refused_;
    std::map<abi::Op, uint32_t> counts_;
    std::map<abi::Op, std::vector<std::byte>> last_;
    std::atomic<uint32_t> received_fds_{0};

    int arena_fd_ = -1;
    std::byte* arena_ = nullptr;
    uint64_t arena_used_ = 0;
    std::byte* doorbells_ = nullptr;
    int doorbell_fd_ = -1;
    abi::EnginePage* engine_page_ = nullptr;
    int engine_page_fd_ = -1;
    static constexpr uint32_t kDevice = 3, kOwnerAt = 64, kFirstAt = 128, kDevicePageBytes = 65536;
    static constexpr uint32_t kRecordAt = kFirstAt + kDevice * sizeof(abi::DeviceRecord);
    std::byte* device_page_ = nullptr;
    int device_page_fd_ = -1;
    int wake_fd_[kEngines] = {-1, -1};
    int async_write_ = -1;
    int channel_write_ = -1;
    uint32_t next_handle_ = 1;
    uint32_t next_slot_ = 130;  // not in the first doorbell words, so that a wrong index is detected
    std::map<uint32_t, Qp> qps_;
    std::map<uint32_t, Cq> cqs_;
    std::map<uint32_t, Srq> srqs_;
};

}  // namespace roci::test
