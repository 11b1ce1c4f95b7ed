#include "orchestratord/app/command_line.h"

int main(int argc, char** argv) { return llorch::orchestratord::app::run_orchestratord(argc, argv); }
