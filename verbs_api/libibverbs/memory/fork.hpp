#pragma once
/// fork(): an adopted page is a shared mapping, which the child must not share. Handlers of pthread_atfork, set when the library
/// is loaded, replace every adopted range in the child by a private copy, and keep the parent's fork() from returning until that
/// is done.
///
/// In the parent, other threads run on: the child sees what they write until its copy is made. In the child, handlers of others
/// that were set earlier run first, on memory that is still shared. Single-threaded programs, and those that exec, cannot notice
/// either.

namespace roci::memory {

/// Sets the handlers, once in a process; called again it does nothing.
void watch_forks();

}  // namespace roci::memory
