// XRC domains. Sessions that open a domain with the same file on the same device share the domain (ibv_open_xrcd(3)). Closing the
// last handle destroys the domain.

#include "host/objects/handlers.hpp"

namespace roci::host::objects {
namespace {

std::shared_ptr<XrcDomain> make_domain(State& state) {
    auto domain = std::make_shared<XrcDomain>(state.platform);
    domain->number = ++state.last_xrcd;
    domain->engine = state.pick_engine();
    return domain;
}

/// Removes the table entries of destroyed domains. Called before a domain with a file is created.
void forget_ended(State& state) {
    std::erase_if(state.xrc_files, [](const auto& entry) { return entry.second.expired(); });
}

Outcome find_shared(Call& c, uint32_t oflags, std::shared_ptr<XrcDomain>& domain) {
    FileIdentity file;
    if (!c.state.platform.identify_file(c.received.peek(), file)) return fail(EBADF, "the descriptor does not refer to a file");
    const auto key = std::pair(*c.session.device, file);
    const auto it = c.state.xrc_files.find(key);
    if (it != c.state.xrc_files.end()) domain = it->second.lock();
    if (domain && (oflags & abi::kXrcdExclusive) != 0)
        return fail(EINVAL, "the file has an XRC domain already and O_EXCL was given");
    if (domain) return done();
    if ((oflags & abi::kXrcdCreate) == 0) return fail(EAGAIN, "the file has no XRC domain yet and O_CREAT was not given");
    forget_ended(c.state);
    domain = make_domain(c.state);
    domain->file = c.received.take();
    c.state.xrc_files[key] = domain;
    return done();
}

}  // namespace

Outcome open_xrcd(Call& c) {
    const auto in = c.in<abi::OpenXrcdRequest>();
    Session& s = c.session;
    if ((in.oflags & ~uint32_t(abi::kXrcdCreate | abi::kXrcdExclusive)) != 0)
        return fail(EINVAL, "oflags {:#x}: only O_CREAT and O_EXCL are supported", in.oflags);
    if (c.received.count() != (in.has_fd != 0 ? 1 : 0))
        return fail(EBADF, "{} descriptors received, but has_fd is {}", c.received.count(), in.has_fd);
    if (Outcome o = has_room(s.xrcds, c.state.caps.max_xrcds, "XRC domain"); o.failed()) return o;
    auto xrcd = std::make_unique<Xrcd>();
    if (in.has_fd != 0) {
        if (Outcome o = find_shared(c, in.oflags, xrcd->domain); o.failed()) return o;
    } else if ((in.oflags & abi::kXrcdCreate) == 0) {
        return fail(EINVAL, "a domain without a file is always a new one: O_CREAT is needed");
    } else {
        xrcd->domain = make_domain(c.state);
    }
    const auto place = s.xrcds.next();
    c.answer(abi::HandleReply{place.handle, place.generation});
    s.xrcds.put(std::move(xrcd));
    return done();
}

Outcome close_xrcd(Call& c) {
    const uint32_t handle = c.in<abi::HandleRequest>().handle;
    Xrcd* xrcd;
    if (Outcome o = look_up(c.session.xrcds, handle, "XRC domain", xrcd); o.failed()) return o;
    if (Outcome o = must_be_idle(xrcd->uses, "XRC domain", "SRQs or QPs"); o.failed()) return o;
    c.session.xrcds.erase(handle);
    return done();
}

}  // namespace roci::host::objects
