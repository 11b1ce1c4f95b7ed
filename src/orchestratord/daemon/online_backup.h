#pragma once
// `orchestratord --backup` beside an orchestratord that serves: it writes the parts, this process makes the file of them.
#include "orchestratord/daemon/orchestrator.h"
#include "orchestratord/store/backup/backup.h"

namespace llorch::orchestratord::daemon {

// `options`: the configuration and token of the one that serves. Says on a terminal how far it is. Errors: UNREACHABLE, those
// of its answer, those of backup::Online.
base::Result<store::backup::Summary> online_backup(const OrchestratorOptions& options,
                                                   const store::backup::Paths& paths);

}  // namespace llorch::orchestratord::daemon
