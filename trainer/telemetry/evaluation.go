package telemetry

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/plx-run/plx/trainer/summary"
)

// evaluationFolder is the subfolder of --summary-dir for evaluations.
// TensorBoard displays each folder as a separate run, so training and
// evaluation can use the same names.
const evaluationFolder = "eval"

// evaluation accumulates the results of an evaluation that the program
// computes in several batches.
type evaluation struct {
	writer  *summary.Writer // writes the results to the subfolder "eval"; nil before the first write
	step    int             // number of training steps before the evaluation
	rows    int             // number of rows evaluated since the last write
	loss    float64         // sum of the losses of all batches; a loss that is a mean is multiplied by the batch's number of rows
	sum     bool            // true if the model's loss is a sum over the rows, false if it is a mean
	metrics map[string]float64
}

// Evaluated records that the program has evaluated a batch. step is the number
// of training steps before the evaluation, and rows is the number of rows in
// the batch. All batches between two training steps become one summary with
// the means over all their rows. If sum is true, the loss is a sum over the
// rows, and the summary holds the sum of all batches.
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

// write writes the results accumulated since the last call as one summary, and
// resets them. dir is the value of --summary-dir.
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
