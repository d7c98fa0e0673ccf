package cluster

import "log/slog"

// VerboseLevel is the log level for details such as plans and cost tables. It
// is below slog.LevelInfo and above slog.LevelDebug.
const VerboseLevel = slog.LevelInfo - 2

// VerboseMark is the prefix of each line that a launched task logs at
// VerboseLevel on stderr. The task always writes such lines, so the job's log
// files have them. The launcher prints them, without the prefix, only if the
// user asks for verbose output.
const VerboseMark = "plx: verbose: "
