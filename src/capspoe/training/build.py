"""From settings to the stages of training."""

from capspoe.config import Config
from capspoe.infer.chains import PoseDensity
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.training.alone import CapsulePairs, CapsulesAlone
from capspoe.training.capsule_stage import Annealing, CapsuleStage
from capspoe.training.cd import ContrastiveDivergence
from capspoe.training.codec_stage import CodecStage
from capspoe.training.pcd import PersistentChains
from capspoe.training.prior_stage import PriorStage
from capspoe.training.recognition import RecognitionStage
from capspoe.training.stage import Schedule, Stage
from capspoe.training.starts import LowRankStart, MixtureStart, RandomStart, Start
from capspoe.training.targets import SpectralTargets, TargetFinder
from capspoe.training.update import Update

ALL_CHAINS, FEWEST_CHAINS, MOST_CHAINS = 320, 4, 16  # persistent chains: in all, and in a capsule


def build_stages(config: Config, network: Network) -> list[Stage]:
    """The stages that train this network: the codec if it learns, each capsule layer, the prior, and recognition."""
    stages: list[Stage] = []
    if network.codec.learns:
        stages.append(codec_stage(config))
    for depth in range(len(network.layers)):
        stages.append(capsule_stage(config, network, depth))
    targets = gate_targets(config, network.top)
    if is_mixture(config, network.top):
        # Capsules have other images than the groups that they started from: the energy knows which.
        return [*stages, PriorStage(config.seed)]
    stages.append(PriorStage(config.seed, targets))
    if config.recognition_steps and network.top.gate.one_on and network.codec.has_images:
        stages.append(RecognitionStage(config.recognition_steps, config.seed, targets, config.recognition_shift))
    return stages


def planned_steps(config: Config, stage: str, images: int) -> int:
    """Number of steps of a stage, by its name, for this many images."""
    if stage == CodecStage.name:
        return codec_stage(config).steps(images)
    if stage == RecognitionStage.name:
        return RecognitionStage(config.recognition_steps).steps(images)
    return capsule_schedule(config).steps(images)


def codec_stage(config: Config) -> CodecStage:
    return CodecStage(
        Schedule(config.autoencoder_epochs, config.autoencoder_batch_size, config.min_steps, config.seed),
        config.autoencoder_optimizer,
        config.autoencoder_learning_rate,
        config.autoencoder_weight_decay,
        config.momentum,
        config.warmup,
        config.clip_norm,
    )


def capsule_schedule(config: Config) -> Schedule:
    return Schedule(config.epochs, config.batch_size, config.min_steps, config.seed)


def capsule_stage(config: Config, network: Network, depth: int) -> CapsuleStage:
    layer = network.stack[depth]
    top = layer is network.top
    # The learning rate is for the top layer's neurons; others take theirs in proportion.
    relative_rate = layer.neurons.learning_rate / network.top.neurons.learning_rate
    stage = CapsuleStage(
        depth,
        capsule_schedule(config),
        capsule_update(config, layer, top),
        gate_targets(config, layer),
        config.learning_rate * relative_rate,
        config.momentum,
        config.weight_decay,
        config.balance_rate,
        Annealing(config.gate_temperature, config.anneal_fraction),
        layer_start(config),
        follow_targets=not is_mixture(config, layer),
    )
    if len(network.layers) > 1:
        stage.title = f"2 capsules, layer {depth + 1}"
    return stage


def layer_start(config: Config) -> Start:
    if config.start == "random":
        return RandomStart()
    if config.start == "mixture":
        return MixtureStart.of(config.seed)
    return LowRankStart(seed=config.seed, avoid_far_modes=True)


def is_mixture(config: Config, layer: CapsuleLayer) -> bool:
    """Whether a layer learns as a mixture, whose capsules have the images that they explain."""
    return config.start == "mixture" and LowRankStart.suits(layer)


def chain_count(config: Config, layer: CapsuleLayer, top: bool) -> int:
    """Persistent chains in each capsule of a layer; 0 for contrastive divergence."""
    if not top:
        return 0
    if config.chains is not None:
        return config.chains
    if not PoseDensity.exists(layer) or config.gate_targets == "none":
        return 0
    # Many capsules share a batch, so the data's side of the gradient is as noisy as that of few chains.
    return min(MOST_CHAINS, max(FEWEST_CHAINS, ALL_CHAINS // layer.upper[0]))


def capsule_update(config: Config, layer: CapsuleLayer, top: bool) -> Update:
    """Persistent chains in the top layer where its energy allows them, else contrastive divergence."""
    if chains := chain_count(config, layer, top):
        return PersistentChains(layer, chains, config.gate_loss_weight, config.seed)
    sample_hidden = config.hidden_states == "drawn"
    sample_visible = config.visible_states == "drawn"
    # With the gate a capsule reconstructs alone in any case.
    if config.reconstruction != "together" and not layer.gate.one_on:
        kind = {"alone": CapsulesAlone, "pair": CapsulePairs}[config.reconstruction]
        return kind(config.cd_steps, sample_hidden, sample_visible)
    return ContrastiveDivergence(
        config.cd_steps, sample_hidden, sample_visible, config.gate_loss_weight, config.capsule_dropout
    )


def gate_targets(config: Config, layer: CapsuleLayer) -> TargetFinder | None:
    """The finder of the gate's targets; None for a gate that anneals, and where there is nothing to choose."""
    if not layer.gate.one_on or layer.upper[0] == 1 or config.gate_targets == "none":
        return None
    return SpectralTargets(config.neighbours, config.seed, config.view, config.kinds)
