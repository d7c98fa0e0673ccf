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
	f.each(ctx, func(ctx context.Context, r *remote) error {
		row := &rows[index[r]]
		if _, row.Err = r.connect(ctx); row.Err != nil {
			return nil // what the probe would try again
		}
		row.Report, row.Err = gpuprobe.Probe(ctx, r)
		if r.embedded && row.Err == nil {
			row.Report.AddLocal()
		}
		if row.Err == nil {
			row.Unmet = machine{Host: r.host, report: &row.Report}.named()
		}
		return nil
	})
	return rows, context.Cause(ctx)
}
