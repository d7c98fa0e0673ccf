package gpuprobe

// AddLocal fills a report about this very machine with the devices that the
// CUDA driver tells of, where nothing else found any. In a plx built without
// the tag cuda it does nothing.
func (r *Report) AddLocal() {
	if len(r.GPUs) > 0 {
		return
	}
	gpus, err := Local()
	if err != nil || len(gpus) == 0 {
		return // a machine without the driver is the usual case, not a fault
	}
	r.GPUs, r.GPUTool = gpus, ToolCUDA
}
