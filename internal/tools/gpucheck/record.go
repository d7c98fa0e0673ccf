package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/executor/device"
)

// record is the result of a run, the content of gpu-check.json.
type record struct {
	Format  int         `json:"format"` // version of the file format, 2
	Plx     string      `json:"plx"`    // version of plx's source
	Kernels string      `json:"kernels"`
	Begin   time.Time   `json:"begin"`
	Quick   bool        `json:"quick"` // whether small sizes were used; the times then mean nothing
	GPU     device.Info `json:"gpu"`
	Checks  []check     `json:"checks"`  // results of the parts, in the order in which they ran
	Answers string      `json:"answers"` // output of nvidia-smi, as collected by the shell script of package gpuprobe
}

// check is the result of one part.
type check struct {
	Name    string   `json:"name"`
	Status  status   `json:"status"`
	Seconds float64  `json:"seconds"`
	Text    string   `json:"text"` // one-line summary, or the error
	Figures []figure `json:"figures,omitempty"`
	Output  string   `json:"output,omitempty"` // the end of the output, if the part failed
}

type status string

const (
	passed status = "passed"
	failed status = "failed"
	absent status = "absent" // the machine or the folder lacks what the part needs
)

// perOperation is the unit of a benchmark's time, in nanoseconds.
const perOperation = "ns/op"

// figure is the result of a benchmark: a number for each unit, such as ns/op.
type figure struct {
	Name  string             `json:"name"`
	Units map[string]float64 `json:"units"`
}

var (
	figureLine  = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?[ \t]+\d+[ \t]+(\S.*)$`)
	verdictLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): `)
)

// read collects the benchmark results from the output of a test program, and
// counts its tests by verdict.
func (c *check) read(out string) (verdicts map[string]int) {
	for _, found := range figureLine.FindAllStringSubmatch(out, -1) {
		f, words := figure{found[1], map[string]float64{}}, strings.Fields(found[2])
		for i := 1; i < len(words); i += 2 {
			if x, err := strconv.ParseFloat(words[i-1], 64); err == nil { // if this is not a number, the line is no benchmark result
				f.Units[words[i]] = x
			}
		}
		c.Figures = append(c.Figures, f)
	}
	verdicts = map[string]int{}
	for _, found := range verdictLine.FindAllStringSubmatch(out, -1) {
		verdicts[found[1]]++
	}
	return verdicts
}

// names returns the names of all benchmarks measured so far.
func (r *record) names() (all []string) {
	for _, c := range r.Checks {
		for _, f := range c.Figures {
			all = append(all, f.Name)
		}
	}
	return all
}

// save writes gpu-check.json and gpu-check.md into a folder.
func (r *record) save(folder string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "gpu-check.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "gpu-check.md"), []byte(r.markdown()), 0o644)
}

// markdown returns the record as a table, below a line about the GPU, driver
// and versions.
func (r *record) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, compute capability %d.%d, %.1f GiB, driver for CUDA %s. %s, plx %s, kernels %.12s.\n", cell(r.GPU.Name),
		r.GPU.Major, r.GPU.Minor, float64(r.GPU.Total)/(1<<30), r.GPU.CUDA(), r.Begin.UTC().Format("2006-01-02"), cell(r.Plx), r.Kernels)
	if r.Quick {
		b.WriteString("Measured with -quick: the times say nothing about the GPU.\n")
	}
	b.WriteString("\n| what | plx | PyTorch | plx / PyTorch |\n|---|---|---|---|\n")
	torch := map[string]float64{} // PyTorch's times in nanoseconds, by benchmark
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "| %s | **%s**, %.0f s: %s | | |\n", cell(c.Name), c.Status, c.Seconds, cell(c.Text))
		for _, f := range c.Figures {
			if c.Name == torchPart {
				torch[f.Name] = f.Units[perOperation]
			}
		}
	}
	for _, c := range r.Checks {
		if c.Name == torchPart {
			continue
		}
		for _, f := range c.Figures {
			ns, beside := f.Units[perOperation], " | "
			if other := torch[f.Name]; other > 0 {
				beside = fmt.Sprintf("%.4g µs | %.2f", other/1000, ns/other)
			}
			fmt.Fprintf(&b, "| %s | %.4g µs%s | %s |\n", cell(f.Name), ns/1000, f.speed(), beside)
		}
	}
	return b.String()
}

// speed returns the throughput of a benchmark for the table, or "" if it was
// not measured.
func (f figure) speed() string {
	for _, unit := range []string{"GFLOP/s", "GB/s"} {
		if x, ok := f.Units[unit]; ok {
			return fmt.Sprintf(", %.4g %s", x, unit)
		}
	}
	return ""
}

// cell escapes a text for a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }
