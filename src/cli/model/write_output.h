#pragma once
// From a model in parts to a file, with what people want to see meanwhile and afterwards.
#include <boost/json.hpp>
#include <functional>

#include "base/result.h"
#include "cli/model/make.h"
#include "engine/models/gguf_export/export_model.h"

namespace CLI {
class App;
}

namespace llorch::cli::model {

void add_output_options(::CLI::App& command, OutputOptions& options, const char* default_type);

// Errors before anything is read: INVALID_PARAMS (a type nobody knows), CONFLICT (as check_output_file() says; `model` is
// what is read, empty: none).
base::Result<> check_output(const OutputOptions& options, const std::string& model = {});

struct Written {
  std::uint64_t bytes = 0;
  boost::json::object facts;  // out, bytes, parameters, types, fallbacks, notes
};
// A progress line on a terminal; SIGINT, SIGTERM and SIGHUP stop the work and leave nothing behind (CANCELLED). `check` is called
// when everything is written; an error it returns leaves nothing behind either. CONFLICT: a file appeared under the name meanwhile.
base::Result<Written> write_output(const engine::models::ExportModel& model, const OutputOptions& options,
                                   bool allow_requantize, const std::function<base::Result<>()>& check = {});

// The facts as lines for people.
void print_written(const Written& written);

}  // namespace llorch::cli::model
