package telemetry

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/plx-run/plx/trainer/summary"
)

// evaluationFolder is below the folder of summaries. TensorBoard shows what is in it as a
// run of its own, with the same names.
const evaluationFolder = "eval"

// evaluation puts the parts of an evaluation together, which a program does in batches.
type evaluation struct {
	writer  *summary.Writer // nil until the first evaluation
	step    int             // number of steps that the variables had seen
	rows    int             // number of rows that were evaluated; 0 means none since the last summary
	loss    float64         // sum over the parts; of a mean, weighted by their rows
	sum     bool            // the loss is a sum
	metrics map[string]float64
}

// Evaluated notes that the program has evaluated so many rows, after so many steps. All
// that it evaluates between two steps becomes one summary: a mean over all rows, of the
// loss, too, unless sum says that it is a sum.
func (r *Recorder) Evaluated(step, rows int, loss float64, sum bool, metrics map[string]float64) {
	if r.summaries != nil {
		r.test.add(step, rows, loss, sum, metrics)
	}
}

func (e *evaluation) add(step, rows int, loss float64, sum bool, metrics map[string]float64) {
	weight := float64(rows)
	e.step, e.rows, e.sum = step, e.rows+rows, sum
	if e.metrics == nil {
		e.metrics = map[string]float64{}
	}
	if sum {
		e.loss += loss
	} else {
		e.loss += loss * weight
	}
	for name, x := range metrics {
		e.metrics[name] += x * weight
	}
}

// write writes what was evaluated since the last call.
func (e *evaluation) write(dir string) (err error) {
	if e.rows == 0 {
		return nil
	}
	if e.writer == nil {
		if e.writer, err = summary.Open(filepath.Join(dir, evaluationFolder)); err != nil {
			return fmt.Errorf("--summary-dir: %w", err)
		}
	}
	report := summary.Evaluation{Step: uint64(e.step), Loss: e.loss, Metrics: maps.Clone(e.metrics)}
	if !e.sum {
		report.Loss /= float64(e.rows)
	}
	for name := range report.Metrics {
		report.Metrics[name] /= float64(e.rows)
	}
	e.rows, e.loss = 0, 0
	clear(e.metrics)
	return e.writer.Evaluation(report)
}

func (e *evaluation) close() error {
	if e.writer == nil {
		return nil
	}
	return e.writer.Close()
}
