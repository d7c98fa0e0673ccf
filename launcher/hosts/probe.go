package hosts

import (
	"context"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/placement"
)

// Probe looks at every host, in file order, and starts nothing. The row of a host that
// could not be reached has the error. So has the row of a host that lacks a GPU of its
// line, for which a launch would be refused.
func Probe(ctx context.Context, reach Reach, t console.Terminal) ([]gpuprobe.Row, error) {
	set, err := Open(ctx, reach, console.NewPrinter(t))
	if err != nil {
		return nil, err
	}
	defer set.Close() // nothing was written
	rows := make([]gpuprobe.Row, len(set.Hosts))
	set.Each(ctx, func(ctx context.Context, i int, h *Host) error { // none returns an error: the rows have them
		row := &rows[i]
		row.Host = h.Label()
		if row.Err = h.Dial(ctx); row.Err == nil { // else the probe would dial again
			row.Report, row.Err = gpuprobe.Probe(ctx, h)
		}
		if row.Err != nil {
			row.Err = h.Named(row.Err)
			return nil
		}
		if h.Embedded {
			row.Report.AddLocal()
		}
		row.Unmet = placement.Machine{Host: h.Resource, Report: &row.Report}.Unmet()
		return nil
	})
	return rows, context.Cause(ctx)
}
