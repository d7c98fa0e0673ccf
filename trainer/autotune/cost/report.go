package cost

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/plx-run/plx/internal/plural"
)

// Report is the input of a report: the bytes that a training transferred in
// some steps.
type Report struct {
	Cluster   Cluster
	Variables []Variable
	Exchanged []Exchange // bytes by variable, worker and shard holder (task that stores variables), summed over all Steps
	Steps     int        // number of steps covered by Exchanged; at least 1
}

// Lines formats the report for a log: a heading, a table with one line per
// variable, and the mean over all hosts.
func (r Report) Lines() []string {
	hosts := r.Cluster.Hosts()
	variables, all := r.measured()
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "variable\tsize\trows touched\tbytes\tby\t")
	total := 0.0
	for i, v := range r.Variables {
		_, most, _ := variables[i].busiest(hosts)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", clean(v.Name, 40), size(float64(v.Bytes)), touched(v), size(most), v.Route)
		total += float64(v.Bytes)
	}
	host, most, mean := all.busiest(hosts)
	fmt.Fprintf(t, "total\t%s\t\t%s\tbusiest: %s\t\n", size(total), size(most), clean(host, 40))
	t.Flush() // Flush writes to a strings.Builder, which never fails.
	lines := []string{fmt.Sprintf("bytes per step at the busiest link, measured over %s: %s, %s, %s", plural.Count(r.Steps, "step"),
		plural.Count(len(r.Cluster.Workers), "worker"), plural.Count(len(r.Cluster.Servers), "server"), plural.Count(len(hosts), "host"))}
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
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

// Cluster has the host of each worker and of each server. Host names are only
// compared and printed.
type Cluster struct {
	Workers, Servers []string // host names, by index of the worker or server
}

// Hosts returns the names of all hosts without duplicates. The hosts of
// workers come first.
func (c Cluster) Hosts() (all []string) {
	for _, host := range slices.Concat(c.Workers, c.Servers) {
		if !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// holder returns the host of shard holder i. The numbers are those of
// Exchange.Holder: first the servers, then the workers.
func (c Cluster) holder(i int) string {
	if i < len(c.Servers) {
		return c.Servers[i]
	}
	return c.Workers[i-len(c.Servers)]
}

// Exchange has the bytes that one worker exchanged with one shard holder (a
// task that stores variables) for one variable. Holder is an index of
// Cluster.Servers; indices from len(Cluster.Servers) on mean workers. If
// Variable is beyond Report.Variables, as for the loss, the bytes count only
// in the totals.
type Exchange struct {
	Variable, Worker, Holder int
	Sent, Received           float64 // bytes that the worker has sent to and received from the holder in all Report.Steps steps
}

// links has, by host name, the number of bytes that leave and enter the host.
type links struct{ out, in map[string]float64 }

func newLinks() links { return links{map[string]float64{}, map[string]float64{}} }

func (l links) send(from, to string, bytes float64) {
	if from != to {
		l.out[from] += bytes
		l.in[to] += bytes
	}
}

// busiest returns the host with the most bytes through its network link, the
// number of these bytes, and the mean number over all hosts.
func (l links) busiest(hosts []string) (host string, most, mean float64) {
	for i, h := range hosts {
		through := max(l.out[h], l.in[h])
		mean += through / float64(len(hosts))
		if i == 0 || through > most {
			host, most = h, through
		}
	}
	return host, most, mean
}

// measured returns the bytes per step through the hosts' links, by variable
// and in total.
func (r Report) measured() (variables []links, all links) {
	for range r.Variables {
		variables = append(variables, newLinks())
	}
	all = newLinks()
	for _, e := range r.Exchanged {
		counted := []links{all}
		if e.Variable < len(r.Variables) {
			counted = append(counted, variables[e.Variable])
		}
		worker, holder := r.Cluster.Workers[e.Worker], r.Cluster.holder(e.Holder)
		for _, l := range counted {
			l.send(worker, holder, e.Sent/float64(r.Steps))
			l.send(holder, worker, e.Received/float64(r.Steps))
		}
	}
	return variables, all
}

// loads returns the bytes per step that each server exchanged, including bytes
// exchanged with workers on the same host. It returns them by variable (the
// loss is last), and in total.
func (r Report) loads() (variables [][]float64, sums []float64) {
	sums = make([]float64, len(r.Cluster.Servers))
	for range sums {
		variables = append(variables, make([]float64, len(r.Variables)+1))
	}
	for _, e := range r.Exchanged {
		if e.Holder < len(sums) {
			bytes := (e.Sent + e.Received) / float64(r.Steps)
			variables[e.Holder][e.Variable] += bytes
			sums[e.Holder] += bytes
		}
	}
	return variables, sums
}

const (
	looksSparse = 0.5 // advise to make a dense variable sparse if less than this fraction of its gradient's rows is not zero
	hot         = 2   // report a server as hot (overloaded) if its load exceeds the mean load of the other servers by this factor
)

// Notes returns advice for the log: dense variables whose gradients have few
// nonzero rows, sparse variables of which workers use almost all rows, and
// overloaded servers.
func (r Report) Notes() (notes []string) {
	for _, v := range r.Variables {
		if note := v.note(); note != "" {
			notes = append(notes, clean(v.Name, 40)+" "+note)
		}
	}
	return append(notes, r.hotNotes()...)
}

func (v Variable) note() string {
	density, _ := v.density()
	share, known := v.share()
	switch {
	case !known:
		return ""
	case !v.Sparse() && density < looksSparse:
		return fmt.Sprintf("looks sparse: %s of its gradient's rows are not zero; an Embedding would send these rows only", percent(density))
	case v.Sparse() && share >= 1:
		return fmt.Sprintf("is sparse, yet a worker touches %s of its rows; a dense variable would send less", percent(density))
	}
	return ""
}

func (r Report) hotNotes() (notes []string) {
	variables, loads := r.loads()
	total := 0.0
	for _, load := range loads {
		total += load
	}
	for server, load := range loads {
		others := (total - load) / float64(len(loads)-1)
		if len(loads) < 2 || load <= hot*others {
			continue
		}
		name, most := "the loss", slices.Max(variables[server])
		if v := slices.Index(variables[server], most); v < len(r.Variables) {
			name = clean(r.Variables[v].Name, 30)
		}
		notes = append(notes, fmt.Sprintf("ps:%d on %s is hot: %s per step, the others have %s on average; %s of it is %s",
			server, clean(r.Cluster.Servers[server], 20), size(load), size(others), percent(most/load), name))
	}
	return notes
}

// size formats bytes with three significant digits, in decimal units (kB, MB)
// as is usual for network links.
func size(bytes float64) string {
	unit, units := 0, []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	for bytes >= 999.5 && unit < len(units)-1 {
		bytes /= 1000
		unit++
	}
	switch {
	case unit == 0 || bytes >= 99.95:
		return fmt.Sprintf("%.0f %s", bytes, units[unit])
	case bytes >= 9.995:
		return fmt.Sprintf("%.1f %s", bytes, units[unit])
	}
	return fmt.Sprintf("%.2f %s", bytes, units[unit])
}

// clean replaces unprintable characters in a name. If the name is longer than
// most characters, clean removes its beginning, because variable names differ
// more at their ends.
func clean(name string, most int) string {
	letters := []rune(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name))
	if len(letters) > most {
		return "…" + string(letters[len(letters)-most+1:])
	}
	return string(letters)
}
