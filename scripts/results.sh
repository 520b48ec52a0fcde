#!/usr/bin/env bash
# Makes the runs behind docs/results.md and prints its tables; runs that are there already are kept.
# `scripts/results.sh` makes all of them, `scripts/results.sh t2 kf` these sections alone; each says how long it took. RUNS=folder
# puts the runs somewhere else than runs/, OPTIONS="--slots 1" hands further options to every `fedtune run` and `search`.
# DATASET=name makes them on that data set, under names that begin with it; without DATASET they are on the embedded digits.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
RUNS=${RUNS:-runs}
SECTIONS="avg t1 t2 rolex kf md dhf personal mixed tuned bn leak"
DATASET=${DATASET:-}
PREFIX=${DATASET:+$DATASET-}

run() { # a method, or an exported configuration, and options of `fedtune run`, the last of them --name
    # shellcheck disable=SC2086  # OPTIONS is several words
    [ -e "$RUNS/$PREFIX${*: -1}" ] || fedtune run "${@:1:$#-2}" ${DATASET:+--dataset "$DATASET"} --seeds 3 \
        --name "$RUNS/$PREFIX${*: -1}" ${OPTIONS:-}
}

tune() { # a method, one of its spaces, and options of `fedtune search`, --name last; NAME.yaml is what it finds best
    local name=$PREFIX${*: -1}
    # shellcheck disable=SC2086  # OPTIONS is several words
    [ -e "$RUNS/$name" ] || fedtune search "$1" --space "$2" "${@:3:$#-4}" ${DATASET:+--dataset "$DATASET"} \
        --name "$RUNS/$name" ${OPTIONS:-}
    [ -e "$RUNS/$name.yaml" ] || fedtune export "$RUNS/$name" -o "$RUNS/$name.yaml"
}

auto() { # methods, a space that they have, a budget in rounds, and options of `fedtune auto`, --name last
    local name=$PREFIX${*: -1}
    # shellcheck disable=SC2086  # OPTIONS is several words
    [ -e "$RUNS/$name" ] || fedtune auto --methods "$1" --space "$2" --budget "$3rounds" --equal --fresh-seeds 10 --final-seeds 1 \
        "${@:4:$#-5}" ${DATASET:+--dataset "$DATASET"} --name "$RUNS/$name" ${OPTIONS:-}
}

compare() { # names of runs, the first one that which the others are tested against; then metrics
    local runs=() metrics=()
    for word in "$@"; do
        if [ -e "$RUNS/$PREFIX$word" ]; then runs+=("$RUNS/$PREFIX$word"); else metrics+=(--metric "$word"); fi
    done
    fedtune compare "${runs[@]}" "${metrics[@]}"
}

avg() {
    run fedavg --set partition=iid --rounds 30 --name fedavg-iid
    run fedavg --rounds 30 --name fedavg-0.1
    compare fedavg-iid fedavg-0.1
}

t1() {
    local lenet="--set model=lenet_code --rounds 8"
    run fedavg --space omega --set omega=0.1 $lenet --name t1-fedavg
    for method in dense fedftg dfrd; do
        for base in fedavg none; do
            tune $method rates --set base=$base $lenet --name t1-rates-$base-$method
            run "$RUNS/${PREFIX}t1-rates-$base-$method.yaml" --name t1-$base-$method
        done
    done
    compare t1-fedavg t1-fedavg-{dense,fedftg,dfrd}
    compare t1-none-{dense,fedftg,dfrd}
}

t2() {
    for method in dense fedftg dfrd; do
        tune $method rates --set base=fedrolex --set rho=10 --rounds 6 --name t2-rates-$method
    done
    for base in heterofl feddropout fedrolex; do
        run $base --space rho --set rho=10 --rounds 6 --name t2-$base
        for method in dense fedftg dfrd; do
            run "$RUNS/${PREFIX}t2-rates-$method.yaml" --set base=$base --name t2-$base-$method
        done
        compare t2-$base t2-$base-{dense,fedftg,dfrd}
    done
}

rolex() {
    for rho in 10 5; do
        run fedrolex --space rho --set rho=$rho --name fedrolex-$rho
        run dfrd --space alpha_lambda --set rho=$rho --name fedrolex-dfrd-$rho
        compare fedrolex-$rho fedrolex-dfrd-$rho
    done
}

kf() {
    local lenet="--set model=lenet_code --set lr=0.05"
    for omega in 0.1 1; do
        for method in fedavg fedprox fedgkd qffl fedgen fedkf; do
            run $method --space fairness --set omega=$omega $lenet --name fair-$method-$omega
        done
        run fedavg --space fairness --set omega=$omega $lenet --set readout=oca --name fair-fedavg-oca-$omega
        run fedkf --space fairness --set omega=$omega $lenet --set teacher=aca --name fair-fedkf-minus-$omega
        compare fair-{fedavg,fedprox,fedgkd,qffl,fedgen,fedavg-oca,fedkf-minus,fedkf}-$omega amp fm wlp
        compare fair-{fedkf-minus,fedkf}-$omega oca_amp oca_fm oca_wlp
    done
}

md() {
    local lenet="--set partition=dir_client --set model=lenet_code --set batch_size=32"
    run fedavg --space omega --set omega=0.1 $lenet --rounds 10 --name md-fedavg
    for method in local fedper lgfedavg fedgen fedcg; do
        run $method --space omega --set omega=0.1 --rounds 10 --name md-$method
    done
    for agg in ave_star ave kd kdc; do
        run fedmdcg --space omega --set omega=0.1 --set server_agg=$agg --rounds 10 --name md-fedmdcg-$agg
    done
    compare md-{local,fedavg,fedper,lgfedavg,fedgen,fedcg,fedmdcg-ave_star,fedmdcg-ave,fedmdcg-kd,fedmdcg-kdc} local_accuracy g_acc_virtual
}

dhf() {
    local clients="--set model=cnn2 --set client_test_fraction=0.25 --set local_epochs=1 --set batch_size=10 --set lr=0.05"
    for partition in pathological dir_pfl; do
        for method in local fedavg fedper lgfedavg; do
            run $method --set partition=$partition --set omega=0.1 $clients --rounds 15 --name p-$method-$partition
        done
        for tau in 0.5 20; do
            run dhf --space tau --set partition=$partition --set nu=0 --set tau=$tau --rounds 15 --name p-dhf-$tau-$partition
        done
        compare p-{local,fedavg,fedper,lgfedavg,dhf-0.5,dhf-20}-$partition p_acc
        compare p-fedavg-$partition p_acc_global
    done
}

trained() { # a section, a method, its name in the section, and options of its search, which is on the practical partition; then runs on both
    tune "$2" personal "${@:4}" --name "$1-space-$3"
    for partition in pathological dir_pfl; do
        run "$RUNS/$PREFIX$1-space-$3.yaml" --set partition=$partition --rounds 15 --name "$1-$3-$partition"
    done
}

personal() {
    for method in local fedavg fedprox fedgen scaffold moon perfedavg fedfomo fedrod fedbabu ditto fedamp fedphp; do
        trained personal $method $method
    done
    for method in fedproto dhf; do
        trained personal $method $method --set nu=0
    done
    for partition in pathological dir_pfl; do
        compare personal-{local,perfedavg,fedfomo,fedrod,fedbabu,ditto,fedamp,fedphp,fedproto,dhf}-$partition p_acc
        compare personal-{fedavg,fedprox,fedgen,scaffold,moon}-$partition p_acc_global
    done
}

mixed() {
    trained mixed fedproto local --set lambda=0 --set predict=head # FedProto without its pull is Local Training
    for method in fedproto feddistill fml fedkd fedgh fedtgp dhf; do
        trained mixed $method $method
    done
    trained mixed lgfedavg lgfedavg
    trained mixed fedgen fedgen --set nu=0.5 --set share=head --metric val_p_acc
    for partition in pathological dir_pfl; do
        compare mixed-{local,lgfedavg,fedgen,fedproto,feddistill,fml,fedkd,fedgh,fedtgp,dhf}-$partition p_acc
    done
}

tuned() {
    auto fedavg,dense,fedftg,dfrd tuned 1128 --name tuned-dfrd
    compare tuned-dfrd/fresh/{fedavg,dense,fedftg,dfrd}
    auto fedrolex,dense,fedftg,dfrd tuned 1128 --set base=fedrolex --set rho=10 --name tuned-widths
    compare tuned-widths/fresh/{fedrolex,dense,fedftg,dfrd}
    local fairness="--set partition=dir_dominant --set client_test_fraction=0.2 --set active_clients=2 --set readout=oca --rounds 15"
    auto fedavg,fedkf tuned 915 $fairness --metric val_amp --name tuned-kf
    auto fedkf tuned 465 $fairness --set teacher=aca --metric val_amp --name tuned-kf-minus
    compare tuned-kf/fresh/fedavg tuned-kf-minus/fresh/fedkf tuned-kf/fresh/fedkf amp wlp aca_amp aca_wlp
    for agg in ave kdc; do
        auto fedmdcg tuned 310 --metric local_accuracy --set server_agg=$agg --name tuned-md-$agg
    done
    compare tuned-md-{ave,kdc}/fresh/fedmdcg local_accuracy g_acc_virtual
    for partition in pathological dir_pfl; do
        auto local,dhf personal 610 --metric p_acc --set nu=0 --set partition=$partition --name tuned-dhf-$partition
        compare tuned-dhf-$partition/fresh/{local,dhf} p_acc
    done
}

leak() {
    for private in random searched; do
        for method in fedavg fedper lgfedavg fedcg fedmdcg local; do
            run $method --rounds 1 --set omega=10 --set partition=dir_client --set attack_images=10 --set attack_private=$private \
                --set local_steps=1 --set lr=0.01 --set batch_size=64 --set model=lenet_code --name leak-$method-$private
        done
        compare leak-{fedavg,fedper,lgfedavg,fedcg,fedmdcg,local}-$private psnr
    done
}

bn() {
    local lenet="--set omega=0.1 --set model=lenet_code"
    for norm in batch running; do
        run fedavg --space omega $lenet --rounds 8 --set batch_norm=$norm --name bn-t1-fedavg-$norm
        # The rates that the section t1 found.
        for rate in dense=0.01 fedftg=1 dfrd=0.03; do
            run ${rate%=*} --space rates --set model=lenet_code --set distill_lr=${rate#*=} --set batch_norm=$norm \
                --name bn-t1-${rate%=*}-$norm
        done
        for method in fedavg fedkf; do
            run $method --space fairness $lenet --set lr=0.05 --set batch_norm=$norm --name bn-fair-$method-$norm
        done
        run fedavg --space omega $lenet --set partition=dir_client --set batch_size=32 --rounds 10 --set batch_norm=$norm \
            --name bn-md-fedavg-$norm
        for method in lgfedavg fedmdcg; do
            run $method --space omega --set omega=0.1 --rounds 10 --set batch_norm=$norm --name bn-md-$method-$norm
        done
        for partition in pathological dir_pfl; do
            run dhf --space tau --set partition=$partition --set nu=0 --set tau=0.5 --rounds 15 --set batch_norm=$norm \
                --name bn-dhf-$partition-$norm
        done
        run dhf --set nu=0 --set server_model=cnn --set batch_norm=$norm --name bn-dhf-global-$norm
    done
    for method in fedavg dense fedftg dfrd; do
        compare bn-t1-$method-{batch,running} global_accuracy local_accuracy
    done
    for method in fedavg lgfedavg fedmdcg; do
        compare bn-md-$method-{batch,running} local_accuracy g_acc_virtual
    done
    compare bn-fair-fedavg-{batch,running} amp wlp
    compare bn-fair-fedkf-{batch,running} amp wlp oca_amp oca_wlp
    for partition in pathological dir_pfl; do
        compare bn-dhf-$partition-{batch,running} p_acc
    done
    compare bn-dhf-global-{batch,running} p_acc_global
}

# shellcheck disable=SC2086  # SECTIONS is several words
[ $# -gt 0 ] || set -- $SECTIONS
for section in "$@"; do
    case " $SECTIONS " in
    *" $section "*) ;;
    *)
        echo "Unknown section '$section'. Known: $SECTIONS." >&2
        exit 2
        ;;
    esac
done
for section in "$@"; do
    SECONDS=0
    $section
    echo "Section $section took $SECONDS s."
done
