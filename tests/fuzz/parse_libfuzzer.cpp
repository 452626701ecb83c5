// The entry point of libFuzzer for the parser. It needs clang and -Dlibfuzzer=true.
#include "parse_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    roci::test::check_parse(data, size);
    return 0;
}
