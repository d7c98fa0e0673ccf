package gpuprobe

// AddLocal adds the devices that the CUDA driver reports to a report about this
// machine, if the report has none yet. Without the build tag cuda it does
// nothing.
func (r *Report) AddLocal() { r.addLocal(Local) }

func (r *Report) addLocal(local func() ([]GPU, error)) {
	if len(r.GPUs) > 0 {
		return // nvidia-smi reports more, and also devices that CUDA_VISIBLE_DEVICES hides
	}
	gpus, err := local()
	if err != nil || len(gpus) == 0 {
		return // most machines have no driver: no fault
	}
	r.GPUs, r.GPUTool = gpus, ToolCUDA
}
