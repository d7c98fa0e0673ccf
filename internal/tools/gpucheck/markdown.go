package main

import (
	"fmt"
	"strings"
)

// markdown is the record as one table, after two lines that say where it is from.
func (r *record) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, compute capability %d.%d, %.1f GiB, driver for CUDA %d.%d. %s, plx %s, kernels %.12s%s.\n", clean(r.GPU.Name),
		r.GPU.Major, r.GPU.Minor, float64(r.GPU.Total)/(1<<30), r.GPU.Driver/1000, r.GPU.Driver%1000/10,
		r.Begin.UTC().Format("2006-01-02"), clean(r.Plx), r.Kernels, r.torch())
	if r.Quick {
		b.WriteString("Measured with -quick: the times say nothing about the GPU.\n")
	}
	b.WriteString("\n| what | plx | PyTorch | plx / PyTorch |\n|---|---|---|---|\n")
	for _, o := range r.Parts {
		fmt.Fprintf(&b, "| %s | **%s**, %.0f s: %s | | |\n", clean(o.Part), o.Status, o.Seconds, clean(o.Text))
	}
	for _, f := range r.Figures {
		torch, ratio := "", ""
		if f.TorchMs > 0 {
			torch, ratio = f.speed(f.TorchMs), fmt.Sprintf("%.2f", f.Ms/f.TorchMs)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", clean(f.What), f.speed(f.Ms), torch, ratio)
	}
	return b.String()
}

func (r *record) torch() string {
	if r.Torch == "" {
		return ", without PyTorch"
	}
	return ", PyTorch " + clean(r.Torch)
}

// clean makes one cell of text.
func clean(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// The part of docs/gpu.md that is generated stands between these lines.
const (
	pageBegin = "<!-- gpu-check: begin -->\n"
	pageEnd   = "<!-- gpu-check: end -->\n"
)

// unmet is what the page says without a record.
const unmet = `No GPU has been met. plx's kernels, both bindings of the driver and the training on a
GPU have run on stand-ins only. No speed on a GPU is known. ` + "`make gpu-check`" + ` builds a folder
that checks and measures them on a machine with a GPU; its result will stand here.
`

// page puts a record into the page docs/gpu.md. Without a record the page says so.
func page(text string, r *record) (string, error) {
	before, rest, begins := strings.Cut(text, pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return "", fmt.Errorf("the page lacks the line %q or %q", strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
	inner := unmet
	if r != nil {
		inner = r.markdown()
	}
	return before + pageBegin + inner + pageEnd + after, nil
}
