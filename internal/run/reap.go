package run

// ReapID is the workflow id under which what a closed run left behind is
// released, or, with a node, what one stage of it did whose workflow was
// terminated: there is one at a time for each.
func ReapID(runKey, stageNode string) string {
	id := "belay/reap/" + runKey
	if stageNode != "" {
		id += "/" + ascii(stageNode)
	}
	return id
}

// JanitorID is the workflow id of the janitor's passes.
const JanitorID = "belay/janitor"
