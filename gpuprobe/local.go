package gpuprobe

// AddLocal fills a report about this very machine with the devices that the
// CUDA driver tells of, where nothing else found any. In a plx built without
// the tag cuda it does nothing.
func (r *Report) AddLocal() { r.addLocal(Local) }

func (r *Report) addLocal(local func() ([]GPU, error)) {
	if len(r.GPUs) > 0 {
		return // what there is tells more, and of devices that CUDA_VISIBLE_DEVICES hides
	}
	gpus, err := local()
	if err != nil || len(gpus) == 0 {
		return // a machine without the driver is the usual case, not a fault
	}
	r.GPUs, r.GPUTool = gpus, ToolCUDA
}
