// Package summary writes what a training reports of its steps, twice: as an
// event file for TensorBoard, and as lines of JSON for every other tool.
//
//	w, err := summary.Open("runs/today")
//	...
//	err = w.Step(summary.Scalars{Step: 7, Loss: 0.25, LearningRate: 0.1,
//		Metrics: map[string]float64{"accuracy": 0.9}})
//	...
//	err = w.Close()
//
// The files are always new: the writer overwrites no file and appends to none.
// The two files of one writer have the names:
//
//	events.out.tfevents.<Unix seconds>.<host>.<pid>.<number>
//	steps.<Unix seconds>.<host>.<pid>.<number>.jsonl
//
// A line is one object (shown here in several lines):
//
//	{"step":7,"time":1714564800.25,"loss":0.25,"learning_rate":0.1,
//	 "gradient_norm":1.5,"samples_per_second":8000,"compute_ms":10.5,
//	 "communication_ms":2,"wait_ms":0.5,"metrics":{"accuracy":0.9}}
//
// Time is in Unix seconds. Values that JSON cannot write as numbers are the
// strings "NaN", "+Inf" and "-Inf". The event file holds the same values as
// float32, under the same names. The name of a metric begins with "metrics/".
//
// The package writes scalars: no images, no histograms, no graphs. It reads
// neither file.
package summary
