package gpuprobe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Row is one host of the resource file with the result of its probe.
type Row struct {
	Host   string
	Report Report // valid only if Err is nil
	Err    error  // reason why the probe failed; nil if it succeeded
	// Unmet reports requested GPUs that the host does not have. nil means that
	// the host has all of them.
	Unmet error
}

// Tables returns the cells of two tables, both with a header row first. hosts
// has one row for each host, in the order of rows, with its state as a single
// word. gpus has one row for each GPU, in index order. notes explains each
// state other than "ok", except for hosts with Unmet set.
func Tables(rows []Row) (hosts, gpus [][]string, notes []string) {
	hosts = [][]string{{"HOST", "CPUS", "MEMORY", "BLAS", "GPUS", "DRIVER", "CUDA", "STATE"}}
	gpus = [][]string{{"HOST", "GPU", "NAME", "CAPABILITY", "MEMORY MIB", "UTIL", "USED BY", "UUID"}}
	for _, row := range rows {
		state, why := row.state()
		hosts = append(hosts, hostCells(row, state))
		if why != "" {
			notes = append(notes, "host "+row.Host+": "+strings.TrimPrefix(oneLine(why), "host "+row.Host+": "))
		}
		if row.Err != nil {
			continue
		}
		for _, g := range row.Report.GPUs {
			gpus = append(gpus, gpuCells(row.Host, g))
			for _, m := range g.MIG {
				gpus = append(gpus, migCells(row.Host, g, m))
			}
		}
	}
	return hosts, gpus, notes
}

func hostCells(row Row, state string) []string {
	if row.Err != nil {
		return []string{row.Host, "-", "-", "-", "-", "-", "-", state}
	}
	r := row.Report
	return []string{
		row.Host, strconv.Itoa(r.CPUs), fmt.Sprintf("%.1f GiB", float64(r.MemoryMiB)/1024),
		cmp.Or(r.BLAS, "none found, gonum is used"), gpuCount(r), cmp.Or(r.Driver, "-"), cmp.Or(r.CUDA, "-"), state,
	}
}

// gpuCount returns the cell for the number of GPUs, such as "4, 3 free", or
// "-" if the host has none.
func gpuCount(r Report) string {
	if len(r.GPUs) == 0 {
		return "-"
	}
	if r.GPUTool == ToolProc || r.GPUTool == ToolBroken || r.GPUTool == ToolHung { // The tool did not work, so it is unknown which GPUs are in use.
		return strconv.Itoa(len(r.GPUs))
	}
	count := 0
	for _, g := range r.GPUs {
		if g.UsedBy() == free {
			count++
		}
	}
	return fmt.Sprintf("%d, %d free", len(r.GPUs), count)
}

// state returns the word for a host's state. If the state is not "ok", why is
// the reason.
func (row Row) state() (state, why string) {
	switch r := row.Report; {
	case row.Err != nil:
		return "failed", cmp.Or(row.Err.Error(), "unknown error")
	case row.Unmet != nil:
		return "lacks GPUs", ""
	case r.GPUError != "":
		return "ok, but", r.GPUError
	case r.GPUTool == ToolProc:
		return "ok, but", "no nvidia-smi: GPUs from /proc/driver/nvidia"
	}
	return "ok", row.Report.Note
}

func gpuCells(host string, g GPU) []string {
	util := "-"
	if g.UtilizationPercent >= 0 {
		util = strconv.Itoa(g.UtilizationPercent) + "%"
	}
	return []string{
		host, strconv.Itoa(g.Index), cmp.Or(g.Name, "-"), cmp.Or(g.ComputeCapability, "-"),
		number(g.MemoryUsedMiB) + "/" + number(g.MemoryTotalMiB), util, g.UsedBy(), cmp.Or(g.UUID, "-"),
	}
}

func migCells(host string, g GPU, m MIG) []string {
	return []string{host, fmt.Sprintf("%d:%d", g.Index, m.Index), "MIG " + m.Profile, "-", "-", "-", usedBy(m.Processes, "-"), m.UUID}
}

func number(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// free is the text in the table's column USED BY for a GPU that a job may use.
const free = "free"

// UsedBy returns the names of the users whose processes run on the GPU, each
// once, with the number of processes if there are several. If no user is
// known, it returns "free", "unknown" or the reason why the GPU counts as busy
// or unusable.
func (g GPU) UsedBy() string {
	switch {
	case g.Fault != "":
		return "unusable: " + g.Fault
	case len(g.Processes) == 0 && g.Busy:
		return "somebody (no process visible)"
	case len(g.Processes) == 0 && g.MemoryUsedMiB == Unknown && g.UtilizationPercent == Unknown:
		return "unknown"
	}
	return usedBy(g.Processes, free)
}

// usedBy returns the names of the users of some processes, each once with the
// number of its processes. Without processes it returns the text none.
func usedBy(all []Process, none string) string {
	if len(all) == 0 {
		return none
	}
	count := map[string]int{}
	for _, p := range all {
		count[cmp.Or(p.User, "pid "+strconv.Itoa(p.PID))]++
	}
	names := slices.Sorted(maps.Keys(count))
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d)", name, n)
		}
	}
	return strings.Join(names, ", ")
}

// oneLine replaces the line breaks of an error text by semicolons. It does not
// shorten the text, because the user needs the whole reason.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

// answer is the JSON object for one host. The fields up to and including
// "gpus" are a stable interface for scripts.
type answer struct {
	Host  string `json:"host"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	Report
}

// JSON writes an array with one object for each row, in the order of rows. The
// field "ok" is true if the probe succeeded and the host has all requested
// GPUs. If "ok" is false, "error" is the reason. If the probe succeeded, the
// object has the host's values even if "ok" is false. "gpus" is always an
// array, and a number that the tool did not report is null.
func JSON(w io.Writer, rows []Row) error {
	answers := make([]answer, 0, len(rows))
	for _, row := range rows {
		a := answer{Host: row.Host}
		if row.Err == nil {
			a.Report = row.Report
		}
		if a.GPUs == nil {
			a.GPUs = []GPU{}
		}
		if err := cmp.Or(row.Err, row.Unmet); err != nil {
			a.Error = cmp.Or(oneLine(err.Error()), "unknown error")
		}
		a.OK = a.Error == ""
		answers = append(answers, a)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answers)
}
