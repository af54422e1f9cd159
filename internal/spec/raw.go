package spec

import (
	"time"

	"go.yaml.in/yaml/v3"
)

// The raw types hold a file as it is written, each value with its place. What
// they have been read into is checked as a whole afterwards, and then frozen
// into a Plan.

type rawFile struct {
	version, description        val[string]
	name                        val[string]
	inputs                      val[[]entry[rawInput]]
	source                      val[rawSource]
	env                         val[[]entry[string]]
	secrets                     val[[]val[string]]
	stages                      val[[]val[rawStage]]
	finally                     val[[]val[rawStep]]
	dedup                       val[rawDedup]
	concurrency                 val[rawConcurrency]
	risk                        val[Risk]
	notify                      val[rawNotify]
	timeout                     val[time.Duration]
	finallyTimeout, releaseTime val[time.Duration]
}

type rawInput struct {
	typ         val[string]
	def         val[*yaml.Node]
	enum        val[[]val[*yaml.Node]]
	required    val[bool]
	description val[string]
}

type rawSource struct {
	path    val[string]
	exclude val[[]val[string]]
	git     val[string]
	ref     val[string]
}

type rawStage struct {
	name         val[string]
	needs        val[[]val[string]]
	when         val[string]
	matrix       val[rawMatrix]
	maxParallel  val[int]
	failFast     val[bool]
	runsOn       val[string]
	env          val[[]entry[string]]
	timeout      val[time.Duration]
	steps        val[[]val[rawStep]]
	rollback     val[[]val[rawStep]]
	finally      val[[]val[rawStep]]
	artifacts    val[[]val[string]]
	services     val[[]val[rawService]]
	concurrency  val[rawConcurrency]
	resources    val[[]val[rawResource]]
	onFailure    val[OnFailure]
	onWorkerLost val[string]
}

// rawMatrix is a matrix as written: its keys in the order of the file.
type rawMatrix struct {
	keys        []entry[[]val[string]]
	include     val[[]val[[]entry[string]]]
	exclude     val[[]val[[]entry[string]]]
	maxParallel val[int]
	failFast    val[bool]
}

type rawStep struct {
	name        val[string]
	run         val[[]val[rawCommand]]
	image       val[rawContainer]
	shell       val[string]
	workingDir  val[string]
	env         val[[]entry[string]]
	secrets     val[[]val[string]]
	uses        val[string]
	with        val[[]entry[*yaml.Node]]
	params      map[string]any // what with comes to, by the parameters of uses
	labels      val[[]entry[string]]
	parallel    val[[]val[rawStep]]
	failFast    val[bool]
	timeout     val[time.Duration]
	gracePeriod val[time.Duration]
	retry       val[rawRetry]
	when        val[string]
	onFailure   val[OnFailure]
	outputs     val[[]val[string]]
	limits      val[rawLimits]
	resources   val[[]val[rawResource]]
	dedup       val[rawDedup]
	risk        val[Risk]
}

type rawDedup struct {
	key          val[string]
	window       val[time.Duration]
	onDuplicate  val[string]
	onMismatch   val[string]
	claimTimeout val[time.Duration]
}

type rawConcurrency struct {
	group  val[string]
	limit  val[int]
	onFull val[string]
}

type rawCommand struct {
	command val[string]
	timeout val[time.Duration]
}

type rawRetry struct {
	maxAttempts     val[int]
	initialInterval val[time.Duration]
	maxInterval     val[time.Duration]
	backoff         val[float64]
	exitCodes       val[[]val[int]]
}
