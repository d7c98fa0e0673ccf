package gpuprobe

import (
	"cmp"
	"encoding/json"
	"io"
)

// answer is one host in JSON. Scripts may rely on the first six fields.
type answer struct {
	Host      string `json:"host"`
	OK        bool   `json:"ok"`
	Error     string `json:"error"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int    `json:"memory_mib"`
	GPUs      []GPU  `json:"gpus"`
	GPUTool   Tool   `json:"gpu_tool"`
	GPUError  string `json:"gpu_error"`
	Driver    string `json:"driver"`
	BLAS      string `json:"blas"`
	BLASPath  string `json:"blas_path"`
	CPUModel  string `json:"cpu_model"`
	Arch      string `json:"arch"`
	Kernel    string `json:"kernel"`
}

// JSON writes an array with one object per row, in the order of rows. ok reports
// whether the host answered and has what the caller asked for; error gives the
// reason if not. A host that answered has its values beside the error. gpus is
// always an array; a number that the tool did not report is null.
func JSON(w io.Writer, rows []Row) error {
	answers := make([]answer, 0, len(rows))
	for _, row := range rows {
		a := answer{Host: row.Host, GPUs: []GPU{}}
		if row.Err == nil {
			a.fill(row.Report)
		}
		if err := cmp.Or(row.Err, row.Unmet); err != nil {
			a.Error = cmp.Or(oneLine(err.Error()), "unknown error")
		}
		a.OK = a.Error == ""
		answers = append(answers, a)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answers)
}

func (a *answer) fill(r Report) {
	a.CPUs, a.MemoryMiB = r.CPUs, r.MemoryMiB
	if r.GPUs != nil {
		a.GPUs = r.GPUs
	}
	a.GPUTool, a.GPUError = r.GPUTool, r.GPUError
	a.Driver, a.BLAS, a.BLASPath = r.Driver, r.BLAS, r.BLASPath
	a.CPUModel, a.Arch, a.Kernel = r.CPUModel, r.Arch, r.Kernel
}
