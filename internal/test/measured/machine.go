package measured

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine is what a reader must know to judge numbers.
type Machine struct {
	Date      string `json:"date"`
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Memory    string `json:"memory"`
	Kernel    string `json:"kernel"`
	System    string `json:"system"`
	Go        string `json:"go"`
	Commit    string `json:"commit"`
	Load      string `json:"load"` // before the first run: other programs' share
	Command   string `json:"command"`
}

// Describe describes this machine, the commit in a folder, and the command that
// repeats what is measured. What cannot be found out is "unknown".
func Describe(root, command string) Machine {
	load := strings.Fields(content("/proc/loadavg"))
	return Machine{
		Date:      time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		Processor: field("/proc/cpuinfo", "model name", ":"),
		Cores:     runtime.NumCPU(),
		Memory:    field("/proc/meminfo", "MemTotal", ":"),
		Kernel:    Said("", "uname", "-sr"),
		System:    strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Go:        runtime.Version(),
		Commit:    Said(root, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"),
		Load:      strings.Join(load[:min(3, len(load))], " "),
		Command:   command,
	}
}

// Complete returns an error if numbers could not be traced to a commit.
func (m Machine) Complete() error {
	if m.Commit == "unknown" {
		return errors.New("git does not know the commit: run it in a clone of plx, not in a copy of its files")
	}
	return nil
}

// field finds a line's value in a file of lines NAME SEPARATOR VALUE.
func field(path, name, separator string) string {
	for line := range strings.Lines(content(path)) {
		if key, value, found := strings.Cut(line, separator); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func content(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // as good as a file that says nothing
	}
	return string(text)
}

// Said is what a program prints, or "unknown": nothing is measured by it.
func Said(dir, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if text := string(bytes.TrimSpace(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}

// Root is the folder of the module that the program is run in.
func Root() (string, error) {
	root, found := strings.CutSuffix(Said("", "go", "env", "GOMOD"), "/go.mod")
	if !found {
		return "", errors.New("run it inside plx's source")
	}
	return root, nil
}
