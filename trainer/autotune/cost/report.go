package cost

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Report is what a training sent in some steps.
type Report struct {
	Cluster   Cluster
	Variables []Variable
	Routes    []Route    // by variable
	Exchanged []Exchange // in all of the steps together
	Steps     int        // 0: nothing was measured
}

// Lines returns a heading, a table with a line for each variable, and the mean
// over hosts. No line is longer than 140 characters.
func (r Report) Lines() []string {
	hosts := r.Cluster.Hosts()
	variables, all := r.measured()
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "variable\tsize\trows touched\tbytes\tby\t")
	total := 0.0
	for i, v := range r.Variables {
		_, most, _ := variables[i].busiest(hosts)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", clean(v.Name, 40), size(float64(v.Bytes)), touched(v), size(most), r.Routes[i])
		total += float64(v.Bytes)
	}
	host, most, mean := all.busiest(hosts)
	fmt.Fprintf(t, "total\t%s\t\t%s\tbusiest: %s\t\n", size(total), size(most), clean(host, 40))
	t.Flush() // a strings.Builder never fails
	lines := []string{fmt.Sprintf("bytes per step at the busiest link, measured over %s: %s, %s, %s", number(r.Steps, "step"),
		number(len(r.Cluster.Workers), "worker"), number(len(r.Cluster.Servers), "server"), number(len(hosts), "host"))}
	for line := range strings.Lines(text.String()) {
		lines = append(lines, shorten(strings.TrimRight(line, " \n"), 140))
	}
	return append(lines, "mean over hosts: "+size(mean))
}

func touched(v Variable) string {
	density, ok := v.density()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f %s", density*float64(v.Rows), percent(density))
}
