package autotune

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/plx-run/plx/trainer/autotune/cost"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/layout"
)

// mostListed is how many variables the report lists, the largest; the others
// share a line.
const mostListed = 20

// table is the i-th table.
func (c *Config) table(i int) layout.Variable {
	return c.Declaration.Variables[len(c.Declaration.Variables)-len(c.Least)+i]
}

// touched is the mean number of rows of each table that one worker touched in a
// step.
func (c *Config) touched(sum totals, window int) []float64 {
	touched := make([]float64, len(sum.touched))
	for i, n := range sum.touched {
		touched[i] = n / float64(window*len(c.Declaration.Workers))
	}
	return touched
}

// describe returns a variable as package cost knows it.
func describe(v layout.Variable, touched float64) cost.Variable {
	c := cost.Variable{Name: v.Name, Bytes: bytesOf(v), Touched: touched}
	if len(v.Shape) > 0 {
		c.Rows = v.Shape[0]
	}
	if v.Sparse != nil {
		c.RowBytes = c.Bytes / c.Rows
	}
	return c
}

// bytesOf is the size of a variable that was checked.
func bytesOf(v layout.Variable) int {
	n, _ := v.Elements()
	return n * v.Dtype.Size()
}

// report logs what was measured in a window of steps. all is what each worker
// exchanged, see [statistics.exchanged].
func (c *Config) report(window int, sum totals, all []float64) {
	if len(c.Cluster.Hosts()) < 2 {
		return
	}
	touched, tables := c.touched(sum, window), len(c.Declaration.Variables)-len(c.Least)
	for i, part := range sum.filled[:tables] {
		rows := 0.0
		if shape := c.Declaration.Variables[i].Shape; len(shape) > 0 {
			rows = part / float64(len(c.Declaration.Workers)) * float64(shape[0])
		}
		touched = slices.Insert(touched, i, rows)
	}
	r, line := c.lines(touched)
	r.Steps = window
	holders := len(c.Declaration.Holders)
	each := 2 * holders * len(line)
	for at := 0; at < len(all); at += 2 {
		r.Exchanged = append(r.Exchanged, cost.Exchange{
			Variable: line[at%each/(2*holders)], Worker: at / each, Holder: c.holder(at % (2 * holders) / 2),
			Sent: all[at], Received: all[at+1],
		})
	}
	c.log(r.Lines())
	c.log(r.Notes())
}

// lines lists the largest variables, and the others as one. line is the index in
// the list of each variable, and at last of the loss. touched is by variable.
func (c *Config) lines(touched []float64) (r cost.Report, line []int) {
	variables := c.Declaration.Variables
	r.Cluster = c.Cluster
	order := make([]int, len(variables))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(bytesOf(variables[b]), bytesOf(variables[a])) })
	line = make([]int, len(order)+1)
	others := cost.Variable{Name: fmt.Sprintf("(%d more)", len(order)-mostListed)}
	for at, i := range order {
		line[i] = min(at, mostListed)
		if at >= mostListed {
			others.Bytes += bytesOf(variables[i])
			continue
		}
		r.Variables, r.Routes = append(r.Variables, describe(variables[i], touched[i])), append(r.Routes, c.route(i))
	}
	if len(order) > mostListed {
		r.Variables, r.Routes = append(r.Variables, others), append(r.Routes, r.Routes[0])
	}
	line[len(order)] = len(r.Variables)
	return r, line
}

// route is where a variable travels now.
func (c *Config) route(i int) cost.Route {
	for _, p := range c.Declaration.Pieces {
		if p.Variable == i && c.Declaration.Holders[p.Holder].Role == cluster.PS {
			return cost.PS
		}
	}
	return cost.AllReduce
}

// holder is a holder as package cost numbers them: servers, then workers.
func (c *Config) holder(index int) int {
	t := c.Declaration.Holders[index]
	if t.Role == cluster.PS {
		return t.Index
	}
	return len(c.Cluster.Servers) + t.Index
}

func (c *Config) log(lines []string) {
	for _, line := range lines {
		c.Logf(slog.LevelInfo, "%s", line)
	}
}
