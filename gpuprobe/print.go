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

// Row is one host of the resource file with its Report, or with the error of
// the probe.
type Row struct {
	Host   string
	Report Report // valid if Err is nil
	Err    error  // why the probe failed; nil means that it succeeded
	// Unmet names what the caller asked for and the host lacks. nil means that the
	// host lacks nothing.
	Unmet error
}

// Tables returns the cells of two tables, each with its head first: the hosts in the order
// of rows, and a line for each of their GPUs in index order. A host's state is a word there.
// Why it is not "ok" stands in notes, but for what is Unmet.
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

// gpuCount returns a text such as "4, 3 free", or a dash for no GPU.
func gpuCount(r Report) string {
	if len(r.GPUs) == 0 {
		return "-"
	}
	if r.GPUTool == ToolProc || r.GPUTool == ToolBroken || r.GPUTool == ToolHung { // who uses them is not known
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

// state returns the state of a host, and why it is not just ok.
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

// free is usedBy's word for a GPU that a job may use.
const free = "free"

// UsedBy names each user of the GPU once, followed by the number of processes if
// there are several. It is "free" or "unknown" for a GPU without known users.
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

// usedBy is the same for processes; none stands for no process.
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

// oneLine returns an error's text without line breaks. It does not shorten the text: the
// user needs the reason.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

// answer is one host in JSON. Scripts may rely on its fields up to "gpus".
type answer struct {
	Host  string `json:"host"`
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	Report
}

// JSON writes an array with one object per row, in the order of rows. ok reports
// whether the host answered and has what the caller asked for; error gives the
// reason if not. A host that answered has its values beside the error. gpus is
// always an array; a number that the tool did not report is null.
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
