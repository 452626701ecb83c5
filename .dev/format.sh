dev_format() { sources | xargs clang-format -i; }
