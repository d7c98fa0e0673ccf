// Package measured contains what the programs that benchmark plx share. It
// stores samples (results of runs) in the format of Go's benchmarks, which
// benchstat reads, together with facts about the machine. It makes tables,
// plots and pages of samples. It builds programs and reads their output. It
// runs no benchmarks itself.
package measured

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// Fact returns a configuration line "key: value" for a file of samples. A line
// with an empty value is not written.
func Fact(key, value string) benchfmt.Config {
	return benchfmt.Config{Key: key, Value: []byte(value), File: true}
}

// Facts returns what a reader needs to judge the numbers: facts about the
// machine, the commit of the working directory, and the command that repeats
// the benchmark. A value that cannot be determined is "unknown".
func Facts(command string) []benchfmt.Config {
	load := strings.Fields(content("/proc/loadavg"))
	return []benchfmt.Config{
		Fact("date", time.Now().UTC().Format("2006-01-02 15:04 UTC")),
		Fact("commit", Said("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*")),
		Fact("cpu", field("/proc/cpuinfo", "model name", ":")),
		Fact("cores", strconv.Itoa(runtime.NumCPU())),
		Fact("memory", field("/proc/meminfo", "MemTotal", ":")),
		Fact("load-before", strings.Join(load[:min(3, len(load))], " ")), // the load comes from other programs, because the benchmark has not started yet
		Fact("system", strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)),
		Fact("kernel", Said("uname", "-sr")),
		Fact("go", runtime.Version()),
		Fact("command", command),
	}
}

// field returns the value in the line that begins with name. The file consists
// of lines NAME SEPARATOR VALUE.
func field(path, name, separator string) string {
	for line := range strings.Lines(content(path)) {
		if key, value, found := strings.Cut(line, separator); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func content(path string) string {
	text, _ := os.ReadFile(path) // an unreadable file is treated as empty
	return string(text)
}

// Said returns the output of a program, or "unknown" if the program fails or
// prints nothing.
func Said(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if text := string(bytes.TrimSpace(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}
