package main

import (
	"fmt"
	"slices"
	"strings"
)

// markdown is what was measured, for a reader: a row for each victim and fault,
// the architectures put together.
func (r *Results) markdown() string {
	var b strings.Builder
	r.circumstances(&b)
	for _, v := range victims {
		rows := r.rows(v, architectures)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n| fault | what happens | noticed after | training again, or ended, after | steps made twice | kept |\n|---|---|---|---|---|---|\n", titles[v])
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	r.loosely(&b)
	r.broken(&b)
	return b.String()
}

// loosely is the table of the modes in which workers do not wait for each other.
func (r *Results) loosely(b *strings.Builder) {
	begun := false
	for _, v := range victims {
		for _, row := range r.rows(v, modes) {
			if !begun {
				fmt.Fprintf(b, "\n### async, ssp:%d and backup:%d\n\n| victim | fault | what happens | noticed after | training again after | steps made twice | kept |\n|---|---|---|---|---|---|---|\n", bound, spares)
				begun = true
			}
			fmt.Fprintf(b, "| %s | %s |\n", titles[v], strings.Join(row, " | "))
		}
	}
}

// titles say whom the cells of a victim are about.
var titles = map[victim]string{
	chief:      "The chief (worker:0), or its host",
	worker:     "Another worker, or its host",
	server:     "A parameter server, or its host",
	supervisor: "A host's supervisor",
	guardian:   "A host's guardian",
	agent:      "Supervisor and guardian of a host, or the connection to them",
	launching:  "The launcher, or its machine",
	departed:   "Whoever follows a detached job, or their machine",
	stray:      "A worker of a detached job, or its host",
	seat:       "The agent that conducts a detached job, or its host",

	scaledChief:  "The chief, or its host, while the job is scaled",
	scaledWorker: "Another worker, or its host, while the job is scaled",
	joining:      "The host that joins while the job is scaled",
}

func (r *Results) circumstances(b *strings.Builder) {
	m := r.Machine
	var seconds []float64
	for _, ref := range r.References {
		seconds = append(seconds, ref.Seconds)
	}
	kept := 0
	for _, s := range r.Samples {
		if s.Failed == "" {
			kept++
		}
	}
	fmt.Fprintf(b, "\n| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"date, commit", m.Date + ", " + m.Commit},
		{"machine", fmt.Sprintf("%s, %d cores, %s, load before %s", m.Processor, m.Cores, m.Memory, m.Load)},
		{"system", fmt.Sprintf("%s, %s, %s", m.System, m.Kernel, m.Go)},
		{"command", "`" + m.Command + "`"},
		{"without a fault", fmt.Sprintf("%d steps, a checkpoint every %d, in %s s; the same weights in every architecture", steps, checkpointEvery, spread(seconds))},
		{"cells", fmt.Sprintf("%d tried of %d, %d have kept their promise", len(r.Samples), len(grid()), kept)},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
}

// rows are those of a victim in some architectures or modes: one for each fault
// that was tried.
func (r *Results) rows(v victim, in []string) (rows [][]string) {
	for _, f := range faults {
		var of []Sample
		for _, a := range in {
			if s := r.sample(Cell{a, v, f}); s != nil {
				of = append(of, *s)
			}
		}
		if len(of) > 0 {
			rows = append(rows, ofFault(f, of))
		}
	}
	return rows
}

// ofFault is the row of one fault.
func ofFault(f fault, of []Sample) []string {
	var noticed, back, redone []float64
	kept := 0
	for _, s := range of {
		if s.Failed != "" {
			continue
		}
		kept++
		if s.Noticed >= 0 {
			noticed = append(noticed, s.Noticed)
		}
		took := s.Back
		if s.Outcome == ends {
			took = s.Ended
		}
		back, redone = append(back, took), append(redone, float64(s.Redone))
	}
	verdict := fmt.Sprintf("%d of %d", kept, len(of))
	if kept < len(of) {
		verdict = "**" + verdict + "**"
	}
	return []string{described[f], string(of[0].Outcome), seconds(noticed), seconds(back), whole(redone), verdict}
}

func seconds(x []float64) string {
	if len(x) == 0 {
		return "-"
	}
	return spread(x) + " s"
}

// spread is the least and the most.
func spread(x []float64) string {
	if len(x) == 0 {
		return "-"
	}
	least, most := fmt.Sprintf("%.1f", slices.Min(x)), fmt.Sprintf("%.1f", slices.Max(x))
	if least == most {
		return least
	}
	return least + " to " + most
}

func whole(x []float64) string {
	if len(x) == 0 {
		return "-"
	}
	if slices.Min(x) == slices.Max(x) {
		return fmt.Sprint(x[0])
	}
	return fmt.Sprintf("%v to %v", slices.Min(x), slices.Max(x))
}

// broken lists the cells that have not kept their promise.
func (r *Results) broken(b *strings.Builder) {
	begun := false
	for _, s := range r.Samples {
		if s.Failed == "" {
			continue
		}
		if !begun {
			fmt.Fprintf(b, "\n### Promises not kept\n\n")
			begun = true
		}
		fmt.Fprintf(b, "- %s, which %s: %s\n", s.Cell, s.Outcome, strings.Join(strings.Fields(s.Failed), " "))
	}
}
