package launcher

import (
	"context"

	"github.com/plx-run/plx/gpuprobe"
)

// Probe looks at every host, in file order, and starts nothing. A host that
// could not be reached has its error in its row, and so has one that lacks what
// its line names, for which a launch would be refused.
func Probe(ctx context.Context, reach Reach, t Terminal) ([]gpuprobe.Row, error) {
	f, err := openFleet(ctx, reach, newVoice(t))
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	rows := make([]gpuprobe.Row, len(f.remotes))
	index := map[*remote]int{}
	for i, r := range f.remotes {
		rows[i].Host, index[r] = r.label(), i
	}
	f.each(ctx, func(ctx context.Context, r *remote) error { // none returns an error: the rows tell
		row := &rows[index[r]]
		if _, row.Err = r.connect(ctx); row.Err == nil { // else the probe would dial again
			row.Report, row.Err = gpuprobe.Probe(ctx, r)
		}
		if row.Err != nil {
			row.Err = r.named(row.Err)
			return nil
		}
		if r.embedded {
			row.Report.AddLocal()
		}
		row.Unmet = machine{Host: r.host, report: &row.Report}.unmet()
		return nil
	})
	return rows, context.Cause(ctx)
}
