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

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/lipgloss/table"
	"github.com/muesli/termenv"
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

// reasonWidth is where the reason for a bad state is wrapped in a drawn table.
const reasonWidth = 60

// Table writes two tables: the hosts in the order of rows, and under it one
// line for each of their GPUs in index order. With colour they are drawn with
// borders, for a terminal; without, they are plain, aligned columns that never
// wrap.
func Table(w io.Writer, rows []Row, colour bool) error {
	hosts := [][]string{{"HOST", "CPUS", "MEMORY", "BLAS", "GPUS", "DRIVER", "CUDA", "STATE"}}
	gpus := [][]string{{"HOST", "GPU", "NAME", "CAPABILITY", "MEMORY MIB", "UTIL", "USED BY", "UUID"}}
	for _, row := range rows {
		hosts = append(hosts, hostCells(row))
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
	text := render(hosts, colour)
	if len(gpus) > 1 {
		text += "\n" + render(gpus, colour)
	}
	_, err := io.WriteString(w, text)
	return err
}

func hostCells(row Row) []string {
	if row.Err != nil {
		return []string{clean(row.Host), "-", "-", "-", "-", "-", "-", oneLine(row.Err.Error())}
	}
	r := row.Report
	return []string{
		clean(row.Host), strconv.Itoa(r.CPUs), fmt.Sprintf("%.1f GiB", float64(r.MemoryMiB)/1024),
		cmp.Or(r.BLAS, "none found, gonum is used"), gpuCount(r), cmp.Or(r.Driver, "-"), cmp.Or(r.CUDA, "-"), state(row),
	}
}

// gpuCount returns a text such as "4, 3 free", or a dash for no GPU.
func gpuCount(r Report) string {
	if len(r.GPUs) == 0 {
		return "-"
	}
	if r.GPUTool != ToolSMI {
		return strconv.Itoa(len(r.GPUs))
	}
	count := 0
	for _, g := range r.GPUs {
		if g.usedBy() == free {
			count++
		}
	}
	return fmt.Sprintf("%d, %d free", len(r.GPUs), count)
}

func state(row Row) string {
	switch r := row.Report; {
	case row.Unmet != nil:
		return oneLine(row.Unmet.Error())
	case r.GPUError != "":
		return "ok, but " + oneLine(r.GPUError)
	case r.GPUTool == ToolProc:
		return "ok, but no nvidia-smi: GPUs from /proc/driver/nvidia"
	}
	return "ok"
}

func gpuCells(host string, g GPU) []string {
	util := "-"
	if g.UtilizationPercent >= 0 {
		util = strconv.Itoa(g.UtilizationPercent) + "%"
	}
	return []string{
		clean(host), strconv.Itoa(g.Index), cmp.Or(g.Name, "-"), cmp.Or(g.ComputeCapability, "-"),
		number(g.MemoryUsedMiB) + "/" + number(g.MemoryTotalMiB), util, g.usedBy(), cmp.Or(g.UUID, "-"),
	}
}

func migCells(host string, g GPU, m MIG) []string {
	return []string{clean(host), fmt.Sprintf("%d:%d", g.Index, m.Index), "MIG " + m.Profile, "-", "-", "-", usedBy(m.Processes, "-"), m.UUID}
}

func number(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// free is usedBy's word for a GPU that a job may use.
const free = "free"

// usedBy names each user of the GPU once, followed by the number of processes if
// there are several. It is "free" or "unknown" for a GPU without known users.
func (g GPU) usedBy() string {
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

// oneLine returns an error's text without line breaks and control characters.
// It does not shorten the text: the user needs the reason.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return printable(strings.Join(lines, "; "))
}

// render draws cells whose first line is the head.
func render(cells [][]string, colour bool) string {
	if !colour {
		return plain(cells)
	}
	// The caller has decided on colour, so the renderer must not detect it.
	styles := lipgloss.NewRenderer(io.Discard)
	styles.SetColorProfile(termenv.ANSI)
	base := styles.NewStyle().Padding(0, 1)
	head := base.Bold(true)
	dim := base.Foreground(lipgloss.Color("8"))
	wrap := lipgloss.NewStyle().Width(reasonWidth)
	last := len(cells[0]) - 1
	for _, line := range cells[1:] {
		if lipgloss.Width(line[last]) > reasonWidth {
			line[last] = wrap.Render(line[last])
		}
	}
	drawn := table.New().Border(lipgloss.RoundedBorder()).BorderStyle(styles.NewStyle().Foreground(lipgloss.Color("8"))).
		Headers(cells[0]...).Rows(cells[1:]...).
		StyleFunc(func(row, col int) lipgloss.Style {
			if row == table.HeaderRow {
				return head
			}
			return cellStyle(base, dim, cells[0][col], cells[row+1][col])
		})
	return drawn.Render() + "\n"
}

// cellStyle colours states and users: green for free or ok, yellow for taken,
// red for faulty.
func cellStyle(base, dim lipgloss.Style, column, cell string) lipgloss.Style {
	paint := func(colour string) lipgloss.Style { return base.Foreground(lipgloss.Color(colour)) }
	switch {
	case column == "STATE" && cell == "ok", column == "USED BY" && cell == free:
		return paint("2")
	case column == "STATE" && strings.HasPrefix(cell, "ok"), column == "USED BY" && !strings.HasPrefix(cell, "unusable"):
		return paint("3")
	case column == "STATE", column == "USED BY":
		return paint("1")
	case column == "UUID", cell == "-":
		return dim
	}
	return base
}

// plain aligns columns with two spaces between them and none at the end.
func plain(cells [][]string) string {
	gap := lipgloss.NewStyle().PaddingRight(2)
	drawn := table.New().Border(lipgloss.HiddenBorder()).BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderHeader(false).BorderColumn(false).
		Headers(cells[0]...).Rows(cells[1:]...).StyleFunc(func(int, int) lipgloss.Style { return gap })
	var b strings.Builder
	for line := range strings.Lines(drawn.Render()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
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
