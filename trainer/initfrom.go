package trainer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/weights"
	"github.com/plx-run/plx/trainer/config"
	"gorgonia.org/tensor"
)

// initFrom copies values from the checkpoint or safetensors file of
// --init-from into the variables of the same names. memory holds the bytes of
// the variables of which every worker has a full copy. Only the chief (worker
// 0) reads the file; the other workers start with the chief's values. If
// training resumes from its own checkpoint, initFrom does nothing.
func (t *training) initFrom(ctx context.Context, memory [][]byte, chief bool, log *printer) error {
	path := t.config.InitFrom
	if path == "" || !chief || t.declared.Checkpoint != "" {
		return nil
	}
	source, err := weights.Open(ctx, path, log.Logf)
	if err != nil {
		return fmt.Errorf("--init-from %w", err)
	}
	defer source.Close() // an error is ignored, because the file is open only for reading
	unused := map[string]checkpoint.Variable{}
	for _, v := range source.Variables() {
		unused[v.Name] = v
	}
	read := 0
	var own []string // variables that keep the program's initial values, each with the reason
	for i, v := range t.checkpointed() {
		saved, found := unused[v.Name]
		switch {
		case !found:
			own = append(own, fmt.Sprintf("%q (not there)", v.Name))
			continue
		case i >= len(memory) || saved.Sparse:
			own = append(own, fmt.Sprintf("%q (a table)", v.Name))
		case saved.Dtype != v.Dtype || !slices.Equal(saved.Shape, v.Shape):
			own = append(own, fmt.Sprintf("%q (there %s of shape %v, here %s of shape %v)", v.Name, saved.Dtype, tensor.Shape(saved.Shape), v.Dtype, tensor.Shape(v.Shape)))
		default:
			values, err := source.Read(ctx, v.Name)
			if err != nil {
				return fmt.Errorf("--init-from %s: %w", path, err)
			}
			copy(memory[i], values)
			read++
		}
		delete(unused, v.Name)
	}
	if read == 0 {
		return config.HintError{
			Text: fmt.Sprintf("--init-from %s: %s has no variable of this program: %s", path, source, some(own)),
			Help: "variables are found by their names: name those of the program as they are there",
		}
	}
	log.Logf(slog.LevelInfo, "%s of %d begin with the values of %s", plural.Count(read, "variable"), len(t.declared.Variables), source)
	if len(own) > 0 {
		log.Logf(slog.LevelInfo, "variables with the program's initial values: %s", some(own))
	}
	if len(unused) > 0 {
		var names []string
		for _, v := range source.Variables() {
			if _, left := unused[v.Name]; left {
				names = append(names, fmt.Sprintf("%q", v.Name))
			}
		}
		log.Logf(slog.LevelInfo, "tensors that were not used: %s", some(names))
	}
	return nil
}

// some joins the first 20 strings of a list, and appends how many more the
// list has.
func some(all []string) string {
	const most = 20
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(all[:most], ", "), more)
	}
	return strings.Join(all, ", ")
}
