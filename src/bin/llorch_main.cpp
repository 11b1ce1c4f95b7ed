#include "cli/commands.h"

int main(int argc, char** argv) { return llorch::cli::run_cli(argc, argv); }
