# Builds everything. Checks the format, the layering, the shell syntax and the lint. Then builds and runs tests with sanitizers.
source .dev/sanitizers.sh

check_format() { sources | xargs clang-format --dry-run -Werror; }

# Runs clang-tidy on the sources of stack, verbs_api and apps, and on the headers that these sources include.
check_lint() { git ls-files 'stack/*.cpp' 'verbs_api/*.cpp' 'apps/*.cpp' | xargs -P "$(nproc)" -n 4 clang-tidy -p "$BUILD" --quiet; }

# `bash -n` checks only the first of its arguments, so there is one call per file.
check_shell() {
    local file
    for file in dev .dev/*.sh .ci/run; do bash -n "$file" || return; done
}

dev_check() {
    step "build" source_and_build
    step "format" check_format
    step "layering" python3 tests/layering/check_layers.py
    step "shell syntax" check_shell
    step "lint (clang-tidy)" check_lint
    sanitizer_steps
    verdict
}

source_and_build() {
    source .dev/build.sh
    dev_build
}
