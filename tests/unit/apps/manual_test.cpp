#include "manual.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "temporary_folder.hpp"

using namespace roci::manual;

TEST(Manual, RoffKeepsItsOwnCharactersOutOfTheText) {
    const Page page{
        "x", 1, "a - b", "1.2", {{"Options", ".first\n\nsecond\\n", {{"-c,--config FILE", "'quoted' at the start"}}}}};
    const std::string text = roff(page);
    EXPECT_EQ(text.find(".TH \"X\" 1 \"\" \"Rocinante 1.2\""), 0u);
    EXPECT_NE(text.find("x \\- a \\- b\n"), std::string::npos);
    EXPECT_NE(text.find(".PP\n\\&.first\n.PP\nsecond\\en\n"), std::string::npos);
    EXPECT_NE(text.find(".TP\n.B \\-c,\\-\\-config FILE\n\\&'quoted' at the start\n"), std::string::npos);
}

TEST(Manual, EveryVariableStandsInTheHelp) {
    for (const Entry& variable : environment())
        EXPECT_NE(environment_help().find("  " + variable.term + "\n"), std::string::npos);
    EXPECT_EQ(environment().size(), 3u);
}

TEST(Manual, BashCompletesCommandsAndTheirOptions) {
    const roci::TemporaryFolder folder;
    const std::string name = folder / "completion";
    std::ofstream(name) << bash_completion("prog", {{"", {"--version"}}, {"run", {"--keep", "--config"}}}, "run");
    const auto completes = [&](const std::string& words, int at, const std::string& expected) {
        const std::string script = "source " + name + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                                   "; _prog; [ \"${COMPREPLY[*]}\" = '" + expected + "' ]";
        return std::system(("bash -c \"" +
                            [&] {
                                std::string quoted;
                                for (const char c : script)
                                    quoted += c == '"' || c == '$' ? std::string("\\") + c : std::string(1, c);
                                return quoted;
                            }() +
                            "\"")
                               .c_str()) == 0;
    };
    EXPECT_TRUE(completes("prog r", 1, "run"));
    EXPECT_TRUE(completes("prog --v", 1, "--version"));
    EXPECT_TRUE(completes("prog run --", 2, "--keep --config"));
}
